"""The reference backend: eager, slow, obviously right, and the oracle of every other one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specplan.backends.reference.capabilities import CAPABILITIES
from specplan.backends.reference.session import ReferenceSession
from specplan.cost_models.memory import speculative_slots
from specplan.ir.capabilities import require_support
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.left_out import block_counts, left_out
from specplan.ir.ops import Forward, Grow, Place, Relabel
from specplan.ir.ops.forward import stack_ends
from specplan.ir.plan import CacheState, Plan, SourceState, ValueState, walk_plan
from specplan.ir.values import State
from specplan.ir.verify import check_plan
from specplan.runtime import require_torch
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sources.source import Source
from specplan.runtime.sources.use import shared_sources


class ReferenceBackend:
    """Interprets plans op by op."""

    capabilities = CAPABILITIES

    def available(self) -> str | None:
        """None when torch and transformers are installed, else what is missing."""
        try:
            require_torch()
        except MissingCapabilityError as error:
            return str(error)
        return None

    def compile(self, plan: Plan, models: Mapping[str, CausalModel]) -> ReferenceExecutable:
        """An executable for a plan.

        Args:
            plan: any plan; it is verified here.
            models: by the names the plan gives them.

        Raises:
            UsageError: the plan breaks a rule, or a model is missing.
            MissingCapabilityError: names the first op that cannot run here.
        """
        check_plan(plan)
        require_support(plan, self.capabilities)
        missing = [name for name in plan.models_run if name not in models]
        if missing:
            raise UsageError(
                f"no model is given for {', '.join(missing)}",
                where=f"plan {plan.name}",
                remedy="Give one checkpoint for each model the plan runs.",
            )
        sizes = {models[name].vocab_size for name in plan.models_run}
        if len(sizes) > 1:
            raise UsageError(
                f"the models' vocabularies differ in size ({sorted(sizes)})",
                where=f"plan {plan.name}",
                remedy="Draft with a model that shares the target's tokenizer.",
            )
        _check_stacks(plan, models)
        _check_skips(plan, models)
        _check_tokens(plan, models["target"].vocab_size)
        _check_children(plan, models["target"].vocab_size)
        _check_windows(plan, models)
        return ReferenceExecutable(plan, models)


class ReferenceExecutable:
    """A plan bound to its models, and to what its sources learned of requests of all batches.

    Attributes:
        plan: what runs.
        models: by the names the plan gives them.
        shared: sources that outlive a batch, by name; see `Executable`.
        side_by_side: whether lanes run at once; None: where there are cores for all of them.
    """

    def __init__(self, plan: Plan, models: Mapping[str, CausalModel]) -> None:
        self.plan = plan
        self.side_by_side: bool | None = None
        self.models = dict(models)
        self.speculative = speculative_slots(plan)
        self.shared = self._new_sources()

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> ReferenceSession:
        """Begin a batch: check the requests and make room for them.

        Args:
            requests: at least one; each prompt has at least one token.
            capacity: tokens of text per row to make room for; what the requests need when None.

        Raises:
            UsageError: names the request and what is wrong with it.
        """
        self.check(requests)
        return ReferenceSession(
            self.plan,
            self.models,
            requests,
            self.shared,
            self.speculative,
            capacity,
            self.side_by_side,
        )

    def forget(self) -> None:
        """See `Executable.forget`."""
        self.shared.update(self._new_sources())

    def _new_sources(self) -> dict[str, Source]:
        return shared_sources(self.plan, self.models["target"].vocab_size)

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse a batch that the plan or its models cannot run.

        Raises:
            UsageError: names the request and what is wrong with it.
        """
        if not requests:
            raise UsageError("a batch needs at least one request")
        target = self.models["target"]
        for index, request in enumerate(requests):
            where, length = f"request {index}", len(request.prompt_tokens)
            longest = min(self.models[name].max_positions for name in self.plan.models_run)
            if length == 0:
                raise UsageError("the prompt has no token", where=where)
            if not all(0 <= token < target.vocab_size for token in request.prompt_tokens):
                raise UsageError(
                    f"a prompt token lies outside the vocabulary of {target.vocab_size}",
                    where=where,
                )
            if length + request.max_new_tokens > longest:
                raise UsageError(
                    f"{length} prompt tokens and {request.max_new_tokens} new ones pass the "
                    f"models' {longest} positions",
                    where=where,
                    remedy=f"Ask for at most {max(longest - length, 0)} new tokens.",
                )
            if self.plan.greedy_only and request.temperature > 0:
                raise UsageError(
                    f"the plan was made for temperature 0, and {request.temperature} is asked for",
                    where=where,
                    remedy="Optimise again with workload.temperature set.",
                )


def _check_stacks(plan: Plan, models: Mapping[str, CausalModel]) -> None:
    """Where a plan names layers, its stack must end where the model's does.

    Raises:
        UsageError: names the model.
    """
    for item in plan.rounds:
        for name, end in stack_ends(plan, item).items():
            layers = models[name].num_layers
            if end not in (0, layers):
                what = f"the plan ends the stack of {name} at layer {end}"
                raise _of_another(plan, f"{what}, and it has {layers} layers")


def _check_skips(plan: Plan, models: Mapping[str, CausalModel]) -> None:
    """Blocks that a plan leaves out must be there, and a source of blocks is made for its model.

    Raises:
        UsageError: names the model.
    """
    for op in walk_plan(plan):
        if isinstance(op, Forward) and op.skip:
            height, layers = left_out(plan, op.skip).height, models[op.model].num_layers
            source = plan.state(op.skip) if isinstance(op.skip, State) else None
            if isinstance(source, SourceState) and block_counts(source.kind)[0] != layers:
                what = f"@{source.name} searches a stack of {block_counts(source.kind)[0]} layers"
                raise _of_another(plan, f"{what}, and {op.model} has {layers}")
            if height > layers:
                what = f"the plan leaves out a block of layer {height - 1} of {op.model}"
                raise _of_another(plan, f"{what}, and it has {layers} layers")


def _check_tokens(plan: Plan, vocabulary: int) -> None:
    """Tokens that a plan names must be there.

    Raises:
        UsageError: names the first that is not.
    """
    named = [
        state.kind.integer("init", -1)
        for state in plan.states
        if isinstance(state, ValueState) and state.kind.name == "tree"
    ]
    for op in walk_plan(plan):
        if isinstance(op, Place):
            named += op.tokens
        elif isinstance(op, Relabel) and op.token is not None:
            named.append(op.token)
    if max(named, default=-1) >= vocabulary:
        what = f"the plan names token {max(named)}, and the vocabulary has {vocabulary}"
        raise _of_another(plan, what)


def _check_children(plan: Plan, vocabulary: int) -> None:
    """No node has more children of different tokens than there are tokens.

    Raises:
        UsageError: says how many.
    """
    ranked = (op for op in walk_plan(plan) if isinstance(op, Grow) and op.how in ("best", "shared"))
    counts = (op.children if isinstance(op.children, tuple) else (op.children,) for op in ranked)
    most = max((max(each, default=0) for each in counts), default=0)
    if most > vocabulary:
        what = f"the plan grows {most} different children"
        raise _of_another(plan, f"{what}, and the vocabulary has {vocabulary} tokens")


def _of_another(plan: Plan, what: str) -> UsageError:
    """The error of a checkpoint that is not the one of the plan."""
    remedy = "Give the checkpoint that the plan was made for."
    return UsageError(what, where=f"plan {plan.name}", remedy=remedy)


def _check_windows(plan: Plan, models: Mapping[str, CausalModel]) -> None:
    """Windows go by the positions of slots, and heads that retrieve chunks share none.

    Raises:
        MissingCapabilityError: names the view and its model.
    """
    for state in plan.states:
        if not isinstance(state, CacheState) or not state.retrieves:
            continue
        if any(window is not None for window in models[state.model].family.windows):
            raise MissingCapabilityError(
                f"@{state.name} keeps retrieved chunks, and layers of {state.model} have sliding "
                "windows",
                where=f"plan {plan.name}",
                remedy="Keep the first and the latest tokens: policy=sink_recent.",
            )
