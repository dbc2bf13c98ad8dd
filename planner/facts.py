"""What methods and the search may read of a problem: models, device, acceptance, lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.cost_models.timing.device import Device, load_device
from specplan.ir.errors import UsageError
from specplan.planner.problem import Problem, TargetModel
from specplan.planner.problem_errors import Origin
from specplan.planner.profiles import check_profiles
from specplan.planner.workload_files import RequestLengths, read_trace


@dataclass(frozen=True)
class ProblemFacts:
    """A problem with everything that planning needs read in; nothing here runs a model.

    Attributes:
        problem: the problem, every path absolute.
        target: shape of the target model.
        drafts: shapes of the draft models by name, in the problem's order.
        device: what prices ops in seconds.
        profiles: acceptance profiles by proposer; one that is missing refuses its methods.
    """

    problem: Problem
    target: ModelShape
    drafts: Mapping[str, ModelShape]
    device: Device
    profiles: Mapping[str, AcceptanceProfile] = field(default_factory=dict)

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
    def mean_context(self) -> float:
        """Mean number of tokens before an output token, over all output tokens."""
        outputs = sum(r.output_tokens for r in self.requests)
        area = sum(r.output_tokens * (r.prompt_tokens + r.output_tokens / 2) for r in self.requests)
        return area / outputs

    @property
    def loads(self) -> tuple[tuple[int, float], ...]:
        """Batch size and mean text of a request, in tokens, of everything that is priced."""
        lengths = self.problem.workload.lengths
        outputs = self.requests[0].output_tokens
        contexts = [prompt + outputs / 2 for prompt in lengths] or [self.mean_context]
        return tuple((batch, context) for batch in self.batch_sizes for context in contexts)

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

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy (temperature 0)."""
        return self.problem.workload.greedy

    def missing_profile(self, proposer: str) -> str:
        """Why a method that needs the acceptance profile of `proposer` cannot be priced."""
        if self.problem.workload.prompts is None:
            return (
                f'the acceptance of "{proposer}" is not known: give workload.prompts to measure '
                f"it on, or a ready profile as acceptance.{proposer}"
            )
        return (
            f'the acceptance of "{proposer}" has not been measured: run `specplan profile '
            "acceptance`"
        )

    def shape(self, role: str) -> ModelShape:
        """Shape of a model by its role in plans: `target` or the name of a draft model."""
        return self.target if role == "target" else self.drafts[role]

    @property
    def shapes(self) -> dict[str, ModelShape]:
        """Shapes of all models by their role in plans."""
        return {"target": self.target, **self.drafts}


def gather_facts(
    problem: Problem,
    *,
    device: Device | None = None,
    profiles: Mapping[str, AcceptanceProfile] | None = None,
) -> ProblemFacts:
    """Read in what a checked problem names.

    Args:
        problem: from `load_problem`.
        device: what prices ops; needed when the problem says "measured", else loaded by name.
        profiles: measured acceptance profiles by proposer; those that the problem names are read
            from their files and win.

    Raises:
        UsageError: when a device or profile file is broken, belongs to other models or to other
            sampling settings, or the measured device is not given.
    """
    shapes = model_shapes(problem)
    if device is None:
        if problem.device == "measured":
            raise UsageError(
                "this machine has not been measured",
                where="device",
                remedy="Run `specplan profile device` with this problem first, or name a device.",
            )
        device = load_device(problem.device)
    found = dict(profiles or {})
    for proposer, path in problem.acceptance.items():
        with Origin().key(f"acceptance.{proposer}"):
            found[proposer] = AcceptanceProfile.load(path)
    check_profiles(problem, shapes, found)
    target = shapes.pop("target")
    return ProblemFacts(problem, target, shapes, device, found)


def model_shapes(problem: Problem) -> dict[str, ModelShape]:
    """Shapes of all models of a problem by their role in plans, `target` first.

    Raises:
        UsageError: when a folder is no checkpoint.
        MissingCapabilityError: when an architecture is not priced.
    """
    shapes = {"target": _shape(problem.models.target, "target")}
    return shapes | {draft.name: _shape(draft, draft.name) for draft in problem.models.drafts}


def _shape(model: TargetModel, name: str) -> ModelShape:
    dtype = None if model.dtype == "auto" else model.dtype
    return ModelShape.from_folder(model.path, dtype=dtype, name=name)
