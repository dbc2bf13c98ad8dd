"""What a backend or engine can run, as data: the search reads it without importing its code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from specplan.ir.errors import MissingCapabilityError
from specplan.ir.ops import Op
from specplan.ir.plan import CacheState, Plan, SourceState, TrackState, walk
from specplan.ir.text.printer import print_op
from specplan.ir.types.host_ops import misplaced
from specplan.ir.types.residency import judges

INTERPRETER = "eager"
"""The backend that runs plans op by op, and all that the others leave to it."""
_RENAMED = {"reference": "eager", "trtllm": "tensorrt_llm", "trt_llm": "tensorrt_llm"}
"""Backends by names that they had before, read for one version; engines by their short names."""


def backend_name(text: str) -> str:
    """The name of a backend or engine as `NAME` or `NAME@VERSION` has it, here `tensorrt_llm`.

    Upper case and dashes do not matter (`vLLM`, `tensorrt-llm`), nor do old and short names.
    """
    name, at, version = text.partition("@")
    name = name.lower().replace("-", "_")
    return f"{_RENAMED.get(name, name)}{at}{version}"


class CapabilityChecker(Protocol):
    """Whatever tells which plans it can run: a backend's capabilities, an engine's table."""

    @property
    def shares(self) -> bool:
        """Whether several devices can share every layer of a model."""
        ...

    @property
    def device_words(self) -> str:
        """Which of the devices that a problem names are used; "" for all of them."""
        ...

    def refusals(self, plan: Plan) -> tuple[Refusal, ...]:
        """Everything in a verified plan that it cannot run; empty when it can run it all."""
        ...


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a backend can run.

    Attributes:
        backend: name of the backend.
        ops: keywords of the ops it runs.
        limits: (keyword of an op or a state, or "plan", and field) -> the values it takes there, or
            names of entries; fields not named here are free.
        required: (op keyword, field) of fields that may be left out in a plan, and not here.
        states: keywords of the states it keeps.
        sources: names of the sources it can look up beside the text.
        policies: names of the policies by which it keeps less than all text in a cache.
        from_checkpoints: it loads models from checkpoints, so it does not run judges, whose
            checkpoints cannot be loaded yet; a backend that gets models ready-made leaves it out.
        any_layer: tracks may hold several layers, the last one or what comes from outside.
        single: (op keyword, field) of list fields that hold one item at most.
        sources_around: sources are asked before a round's one call, and taught after it.
        whole_rounds: a round is one call, and no op can be timed by itself.
        stops: loops may end before their last trip.
        all_trips: an early end saves no time, because all trips run for the requests that go on.
    """

    shares: ClassVar[bool] = True
    device_words: ClassVar[str] = ""
    backend: str
    ops: frozenset[str]
    states: frozenset[str]
    sources: frozenset[str] = frozenset()
    policies: frozenset[str] = frozenset()
    limits: Mapping[tuple[str, str], tuple[Any, ...]]
    required: frozenset[tuple[str, str]] = frozenset()
    from_checkpoints: bool = False
    any_layer: bool = False
    single: frozenset[tuple[str, str]] = frozenset()
    sources_around: bool = False
    whole_rounds: bool = False
    stops: bool = False
    all_trips: bool = False

    def refusals(self, plan: Plan) -> tuple[Refusal, ...]:
        """Everything in a plan that the backend cannot run; empty when it can run it all."""
        return refusals(plan, self)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a backend cannot run a plan: the op or state, and the reason."""

    backend: str
    where: str
    reason: str

    def __str__(self) -> str:
        return f"backend {self.backend} cannot run `{self.where}`: {self.reason}"

    @property
    def words(self) -> str:
        """The reason first, so that refusals of one kind stand together."""
        return f"backend {self.backend}: {self.reason} (`{self.where}`)"


def refusals(plan: Plan, capabilities: Capabilities) -> tuple[Refusal, ...]:
    """Everything in a plan that a backend cannot run; empty when it can run it all."""
    refused = [*_state_refusals(plan, capabilities)]
    for item in plan.rounds:
        for op in walk(item.ops):
            reason = _reason(op, capabilities)
            if reason is not None:
                text = print_op(op).splitlines()[0].removesuffix(" {")
                refused.append(Refusal(capabilities.backend, text, reason))
        if capabilities.sources_around:
            placed = misplaced(item)
            refused += [Refusal(capabilities.backend, print_op(op), why) for op, why in placed]
    if capabilities.from_checkpoints:
        reason = "no checkpoint of a judge can be loaded yet"
        name = capabilities.backend
        refused += [Refusal(name, print_op(op), reason) for op in judges(plan)]
    return tuple(refused)


def require_support(plan: Plan, capabilities: Capabilities) -> None:
    """Refuse a plan by the first op or state that the backend cannot run.

    Raises:
        MissingCapabilityError: names the op, the backend and the remedy.
    """
    refused = refusals(plan, capabilities)
    if refused:
        raise MissingCapabilityError(
            f"{refused[0]}" + (f" ({len(refused) - 1} more)" if len(refused) > 1 else ""),
            where=f"plan {plan.name}",
            remedy="Choose another plan or another backend; `specplan methods` lists what runs.",
        )


def _reason(op: Op, capabilities: Capabilities) -> str | None:
    if op.keyword not in capabilities.ops:
        return f"it has no op {op.keyword}"
    reason = _beyond(op.keyword, op, capabilities)
    if reason is not None:
        return reason
    for keyword, field in capabilities.required:
        if keyword == op.keyword and getattr(op, field) is None:
            return f"{field}= is left out"
    for keyword, field in capabilities.single:
        if keyword == op.keyword and len(getattr(op, field)) > 1:
            return f"{field} may hold one item only"
    region = op.body
    if region is not None and region.until is not None and not capabilities.stops:
        return "loops that stop early are not supported"
    return None


def _beyond(keyword: str, item: object, capabilities: Capabilities) -> str | None:
    """Why an op, a state or the plan itself has an attribute that the backend does not take."""
    for (limited, field), allowed in capabilities.limits.items():
        if limited != keyword:
            continue
        value = getattr(item, field)
        name = getattr(value, "name", value)
        if value not in allowed and name not in allowed:
            takes = ", ".join("unset" if item in (None, ()) else str(item) for item in allowed)
            return f"{field} may only be {takes}"
    return None


def _small_cache_reason(state: CacheState, capabilities: Capabilities) -> str | None:
    """Why a cache that holds less than all text cannot be kept, or None."""
    if not capabilities.policies:
        return "it keeps whole caches only"
    if state.policy is None or state.policy.name not in capabilities.policies:
        return f"it keeps a part of a cache by {', '.join(sorted(capabilities.policies))} only"
    return "a cache with a policy says its budget=" if state.budget is None else None


def _state_refusals(plan: Plan, capabilities: Capabilities) -> list[Refusal]:
    refused = []
    for state in plan.states:
        reason = None
        if state.keyword not in capabilities.states:
            reason = f"it keeps no {state.keyword} states"
        elif isinstance(state, CacheState) and (state.view or state.policy or state.budget):
            reason = _small_cache_reason(state, capabilities)
        elif isinstance(state, TrackState) and not (
            capabilities.any_layer or isinstance(state.layer, int)
        ):
            reason = "it keeps hidden states of one numbered layer only"
        elif isinstance(state, SourceState) and state.kind.name not in capabilities.sources:
            known = ", ".join(("@text", *sorted(capabilities.sources)))
            reason = f"it looks up {known} only"
        else:
            reason = _beyond(state.keyword, state, capabilities)
        if reason is not None:
            refused.append(Refusal(capabilities.backend, f"state @{state.name}", reason))
    reason = _beyond("plan", plan, capabilities)
    if reason is not None:
        refused.append(Refusal(capabilities.backend, f"plan {plan.name}", reason))
    return refused
