"""What methods and the search read of a problem: models, device, acceptance, lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.drafters import Drafter, Drawn, Model, OwnRounds
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.cost import Quantity
from specplan.cost_models.devices.device import Device, device_count, load_device
from specplan.cost_models.memory.runtime import Runtime, runtime_of
from specplan.cost_models.models.drafter_shapes import DrafterShape, is_drafter_folder, read_drafter
from specplan.cost_models.models.forward import shared
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.quality.certificate import Measured
from specplan.cost_models.serving.server import Server
from specplan.ir.capabilities import Capabilities, CapabilityChecker
from specplan.ir.errors import UsageError
from specplan.ir.plan import MODULE_PREFIX
from specplan.planner.drafters.profiles import acceptance_key, check_profiles, stated_profile
from specplan.planner.measured.plans import MeasuredPlans
from specplan.planner.problem.errors import Origin
from specplan.planner.problem.schema import Problem
from specplan.planner.problem.workload import RequestLengths, read_trace
from specplan.planner.reasons import Cause, Reason
from specplan.planner.search.objectives import Load, Objective
from specplan.planner.serving.pools import server_as_stated

EvidenceT = TypeVar("EvidenceT")


@dataclass(frozen=True)
class ProblemFacts:
    """A problem with everything that planning needs; nothing here runs a model.

    Attributes:
        problem: the problem, every path absolute.
        target: shape of the target model.
        drafts: shapes of the draft models by name, in the problem's order.
        drafters: those of the problem's drafts that read the target's hidden states, by name.
        capabilities: of the backend or engine that is to run the plan; None for planning only.
        device: what prices ops in seconds.
        profiles: acceptance profiles by drafter; one that is missing refuses its methods.
        measured: plans that ran on this device already; none where nothing was tuned.
        losses: what plans lose against the target, by their keys; read with a quality limit.
        replays: drafts leave no recurrent states, and accepted tokens run again.
        own_rounds: what plans of settings run, with their problem (`specplan.planner.method`).
    """

    problem: Problem
    target: ModelShape
    drafts: Mapping[str, ModelShape]
    device: Device
    profiles: Mapping[Drafter, AcceptanceProfile] = field(default_factory=dict)
    drafters: Mapping[str, DrafterShape] = field(default_factory=dict)
    capabilities: CapabilityChecker | None = None
    measured: MeasuredPlans = field(default_factory=MeasuredPlans)
    losses: Mapping[str, Measured] = field(default_factory=dict)
    replays: bool = False
    own_rounds: dict[Any, tuple[Problem, OwnRounds]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @cached_property
    def requests(self) -> tuple[RequestLengths, ...]:
        """Lengths of the requests of the workload: those of its trace, or one by prompt length."""
        workload = self.problem.workload
        if workload.trace is not None:
            return tuple(read_trace(workload.trace))
        assert workload.lengths and workload.output_tokens, "checked when it was loaded"
        return tuple(RequestLengths(prompt, workload.output_tokens) for prompt in workload.lengths)

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean length of a prompt, in tokens."""
        return sum(r.prompt_tokens for r in self.requests) / len(self.requests)

    @property
    def prompt_lengths(self) -> Sequence[int]:
        """Those that are priced apart, in tokens; the mean one of a trace."""
        return self.problem.workload.lengths or [round(self.mean_prompt_tokens)]

    @property
    def mean_context(self) -> float:
        """Mean number of tokens before an output token, over all output tokens."""
        outputs = sum(r.output_tokens for r in self.requests)
        area = sum(r.output_tokens * (r.prompt_tokens + r.output_tokens / 2) for r in self.requests)
        return area / outputs

    @property
    def contexts(self) -> tuple[float, ...]:
        """Mean text of a request, in tokens: one by prompt length, or that of a trace."""
        lengths, half = self.problem.workload.lengths, self.requests[0].output_tokens / 2
        return tuple(prompt + half for prompt in lengths) or (self.mean_context,)

    @property
    def loads(self) -> tuple[tuple[int, float], ...]:
        """Batch size and mean text of a request, in tokens, of everything that is priced."""
        return tuple((batch, context) for batch in self.batch_sizes for context in self.contexts)

    @property
    def longest_text(self) -> int:
        """Prompt and output of the longest request, in tokens."""
        return max(r.prompt_tokens + r.output_tokens for r in self.requests)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes of the workload."""
        return self.problem.workload.batch_sizes

    @property
    def memory_bytes(self) -> float:
        """Memory that a plan may take: the device's, or the limit where that is less."""
        limit = self.problem.limits.memory
        return self.device.memory_bytes if limit is None else min(limit, self.device.memory_bytes)

    @cached_property
    def runtime(self) -> Runtime:
        """How what runs the plans uses memory; engines read prompts in chunks of their own."""
        server = self.server
        tokens = {"first": inf, "chunked": server.step_tokens, "elsewhere": 0}[server.prefill]
        return replace(runtime_of(self.device), step_tokens=tokens)

    @property
    def server(self) -> Server:
        """How requests are batched: as the problem states, else as its backend does."""
        return server_as_stated(self.problem)

    @property
    def objective(self) -> Objective:
        """What counts as better."""
        rate, limits = self.problem.workload.request_rate, self.problem.limits
        if self.problem.objective != "goodput":
            return self.problem.objective
        assert rate is not None, "checked when it was loaded"
        times, gaps = (limits.request_latency, limits.ttft, limits.tpot), self.problem.serving
        return Load(rate, self.memory_bytes, *times, self.server, gaps.burstiness)

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy (temperature 0)."""
        return self.problem.workload.greedy

    def missing_profile(self, drafter: Drafter) -> Reason:
        """Why a method that needs the acceptance profile of `drafter` cannot be priced."""
        return Reason(self._missing_profile(drafter), Cause.ACCEPTANCE)

    def _missing_profile(self, drafter: Drafter) -> str:
        if isinstance(drafter, Model | Drawn) and drafter.name not in self.drafts:
            return (
                f'the acceptance of "{drafter}" is not known and cannot be measured here: give a '
                f"ready profile as acceptance.{drafter} (`specplan import acceptance`)"
            )
        if self.problem.workload.prompts is None:
            return (
                f'the acceptance of "{drafter}" is not known: give workload.prompts to measure '
                f"it on, or a ready profile as acceptance.{drafter}"
            )
        return (
            f'the acceptance of "{drafter}" has not been measured: run `specplan profile '
            "acceptance`"
        )

    def no_tree(self, drafter: Drafter) -> str:
        """Why no tree by `drafter`, whose acceptance is known, is better than a chain."""
        if self.profiles[drafter].evidence.knows_second_choices:
            return f'no second choice of "{drafter}" is ever accepted'
        words = (
            f'the acceptance of "{drafter}" is known for first choices only, without the second '
            "choices that trees need: measure it with `specplan profile acceptance`"
        )
        return Reason(words, Cause.FIRST_CHOICES)

    def evidence(self, drafter: Drafter, kind: type[EvidenceT], use: str) -> EvidenceT | str:
        """The evidence in a drafter's profile, or why there is none of the wanted kind.

        Args:
            drafter: who drafts.
            kind: of evidence that prices what a method drafts.
            use: what that is, for the reason.
        """
        if drafter not in self.profiles:
            return self.missing_profile(drafter)
        evidence = self.profiles[drafter].evidence
        if isinstance(evidence, kind):
            return evidence
        return (
            f'the acceptance profile of "{drafter}" holds {evidence.kind}, which say nothing of '
            f"{use}: measure it with `specplan profile acceptance`"
        )

    def shape(self, role: str) -> ModelShape:
        """Shape of a model by its role in plans: `target`, the name of a draft, or a module."""
        return self.shapes[role]

    def pass_seconds(self, role: str, widths: int) -> NDArray[np.float64]:
        """Seconds of a model's forward passes over 1 to `widths` tokens, [loads, widths].

        Raises:
            UnpricedError: the device cannot say.
        """
        if (role, widths) not in self._pass_seconds:
            batch: Quantity = np.array(self.batch_sizes, dtype=np.float64)[:, None, None]
            context: Quantity = np.array(self.contexts)[:, None]
            tokens: Quantity = np.arange(1, widths + 1)
            passes = self.device.forward_seconds(self.shape(role), batch, tokens, context)
            grid = len(self.batch_sizes), len(self.contexts), widths
            seconds = np.broadcast_to(passes.median, grid)
            self._pass_seconds[role, widths] = seconds.reshape(-1, widths)
        return self._pass_seconds[role, widths]

    @cached_property
    def _pass_seconds(self) -> dict[tuple[str, int], NDArray[np.float64]]:
        return {}

    @cached_property
    def modules(self) -> dict[str, ModelShape]:
        """The target's own drafting modules by their role in plans, the first one first."""
        modules = enumerate(self.target.drafter_modules)
        return {f"{MODULE_PREFIX}{index}": module for index, module in modules}

    @cached_property
    def shapes(self) -> dict[str, ModelShape]:
        """Shapes of all models by their role in plans, `target` first."""
        readers = {name: drafter.shape for name, drafter in self.drafters.items()}
        return {"target": self.target, **self.drafts, **readers, **self.modules}


def gather_facts(
    problem: Problem,
    *,
    device: Device | None = None,
    profiles: Mapping[Drafter, AcceptanceProfile] | None = None,
    capabilities: CapabilityChecker | None = None,
) -> ProblemFacts:
    """Read in what a checked problem names.

    Args:
        problem: from `load_problem`.
        device: what prices ops; needed when the problem says "measured", else loaded by name. One
            on which rounds of the problem's backend were timed is priced as that compiles them.
        profiles: measured acceptance profiles by drafter; those that the problem names are read
            from their files and win.
        capabilities: of the problem's backend; None to plan for no backend of this package. Where
            that runs all trips of loops that end early, all are priced, whatever profiles tell.

    Raises:
        UsageError: when a device or profile file is broken, belongs to other models or to other
            sampling settings, or the measured device is not given.
    """
    target = problem.models.target.shape("target", problem.workload)
    drafts, drafters = _drafts(problem, target)
    if device is None:
        if problem.device == "measured":
            raise UsageError(
                "this machine has not been measured",
                where="device",
                remedy="Run `specplan profile device` with this problem first, or name a device.",
            )
        device = load_device(problem.device, problem.backend)
    if isinstance(capabilities, Capabilities) and capabilities.whole_rounds:
        from specplan.cost_models.devices.measured.compiled import compiled_by

        device = compiled_by(device, capabilities.backend)
    known = dict(profiles or {})
    shapes = ProblemFacts(problem, target, drafts, device, drafters=drafters).shapes
    for drafter, stated in problem.stated_acceptance.items():
        with Origin().key(f"acceptance.{drafter}"):
            key = acceptance_key(problem, shapes, drafter)
            known[drafter] = stated_profile(stated, key, drafters)
    if isinstance(capabilities, Capabilities) and capabilities.all_trips:
        known = {one: profile.with_all_trips() for one, profile in known.items()}
    facts = ProblemFacts(problem, target, drafts, device, known, drafters, capabilities)
    check_profiles(problem, facts.shapes, known)
    return facts


def _drafts(
    problem: Problem, target: ModelShape
) -> tuple[dict[str, ModelShape], dict[str, DrafterShape]]:
    """The problem's drafts by name: models of their own, and those that read hidden states."""
    models: dict[str, ModelShape] = {}
    drafters: dict[str, DrafterShape] = {}
    for draft in problem.models.drafts:
        if is_drafter_folder(draft.path):
            drafters[draft.name] = read_drafter(
                draft.path, target, name=draft.name, **draft.formats
            )
        else:
            shape = draft.shape(draft.name)
            models[draft.name] = shared(shape, draft.tensor_parallel, device_count(problem.device))
    return models, drafters
