"""A plan: models, states, rounds, and a schedule that says which round runs when."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias

from specplan.ir.errors import UsageError
from specplan.ir.op import Op
from specplan.ir.values import Entry, Range, State, Text


def _hashed_once(self: Any) -> int:
    """Hash of the fields, remembered: plans are long, and keys of what is inferred from them."""
    known = self.__dict__.get("_hash")
    if known is None:
        known = hash(tuple(getattr(self, item.name) for item in fields(self)))
        object.__setattr__(self, "_hash", known)
    return int(known)


MODEL_DTYPES = ("auto", "bfloat16", "float16", "float32", "float64", "Q8_0", "Q4_0")
"""Formats that models run in here; `auto` is that of the checkpoint."""
MODULE_PREFIX = "module_"
"""Begins the roles of the target's own drafting modules."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model by its role; where its files are is the business of the bundle.

    The weights of a `live` model may change between rounds. A model that is a part or a variant
    `of` another role has no weights of its own in memory; `part` says which.
    """

    name: str
    digest: Text | None = None
    dtype: str | None = None
    revision: Literal["fixed", "live"] = "fixed"
    of: str | None = None
    part: Text | None = None


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What must hold for the plan to be right, and what it promises.

    `law`: which law the output follows: the target's, the one that the judging logits state,
    another within a tested risk (`bounded`), or any (`free`). `temperature`: the only sampling
    temperatures it may serve. `batch` in requests and `context` in tokens bound where it was
    priced.
    """

    law: Entry = Entry("target")
    reproducible: bool = True
    temperature: float | Range | None = None
    batch: Range | None = None
    context: Range | None = None

    def __post_init__(self) -> None:
        """Read what earlier versions wrote: `risk=` was the loss, `confidence=` 1 less the risk."""
        confidence = self.law.get("confidence")
        if self.law.name == "bounded" and isinstance(confidence, float):
            others = [pair for pair in self.law.arguments if pair[0] not in ("risk", "confidence")]
            loss, risk = self.law.get("risk", 0.0), round(1.0 - confidence, 12)
            assert loss is not None
            known = (("loss", loss), ("risk", risk), *(p for p in others if p[0] != "loss"))
            object.__setattr__(self, "law", Entry("bounded", known))

    @property
    def lossless(self) -> bool:
        """True when it promises the target's own law."""
        return self.law.name == "target"

    @property
    def greedy(self) -> bool:
        """True when temperature 0 is the only one."""
        if isinstance(self.temperature, Range):
            return self.temperature.low == self.temperature.high == 0.0
        return self.temperature == 0.0


@dataclass(frozen=True, kw_only=True)
class CacheState:
    """Keys and values of a model, per request and layer, or a reduced view of another cache.

    Every pass on it also attends to what the state `reads` holds: another model's cache, or a
    track. `rollback` says how layers with a recurrent state forget what was rejected: `snapshot`
    keeps a state per drafted node, with `replay` drafted nodes are never kept, and those that were
    accepted run again in the next round.
    """

    keyword: ClassVar[str] = "cache"
    name: State
    model: str
    view: State | None = None
    policy: Entry | None = None
    budget: int | None = None
    dtype: str | None = None
    reads: State | None = None
    rollback: Literal["replay", "snapshot"] | None = None

    @property
    def retrieves(self) -> bool:
        """Whether it holds the chunks that the queries of another cache ask for."""
        return self.policy is not None and self.policy.name == "retrieved"

    @property
    def observes(self) -> bool:
        """Whether it holds what the last tokens of the prompt attend to."""
        return self.policy is not None and self.policy.name == "observed"


@dataclass(frozen=True, kw_only=True)
class TrackState:
    """Hidden states of a model at some layers, per position and node.

    With `levels` above 1 it keeps those of the slots below each node, too: where a pass ran slots.
    """

    keyword: ClassVar[str] = "track"
    name: State
    model: str
    layer: int | str | tuple[int, ...]
    levels: int = 1


@dataclass(frozen=True, kw_only=True)
class SourceState:
    """Something that is looked up and perhaps updated; a `group` is requests of one kind."""

    keyword: ClassVar[str] = "source"
    name: State
    kind: Entry
    scope: Literal["request", "group", "process", "read_only"] = "request"
    at: Literal["host", "device"] = "host"
    path: Text | None = None


@dataclass(frozen=True, kw_only=True)
class ValueState:
    """A tree or a number carried from one round to the next.

    Earlier versions wrote `law=drawn` for `how=draw`, and `law=point` for what stands without.
    """

    keyword: ClassVar[str] = "value"
    name: State
    kind: Entry

    def __post_init__(self) -> None:
        """Read what earlier versions wrote."""
        if self.kind.get("law") is not None:
            now = {"drawn": (("how", "draw"),), "point": ()}
            pairs = [
                now.get(str(atom), (("how", atom),)) if key == "law" else ((key, atom),)
                for key, atom in self.kind.arguments
            ]
            kind = Entry(self.kind.name, tuple(pair for some in pairs for pair in some))
            object.__setattr__(self, "kind", kind)

    @property
    def keeps_probs(self) -> bool:
        """Whether its nodes are drawn ones, which it keeps with the laws they were drawn from."""
        return self.kind.get("how") == "draw"


StateDeclaration: TypeAlias = CacheState | TrackState | SourceState | ValueState


@dataclass(frozen=True, kw_only=True)
class Round:
    """One draft - verify - accept - commit cycle as a small SSA program."""

    name: str
    ops: tuple[Op, ...]

    __hash__ = _hashed_once


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Run `round` while the formula over batch, context, emitted, phase and group holds."""

    formula: Text
    round: str


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Guards in order, then the round for everything else.

    `hysteresis` is the fraction by which a bound must be passed before a switch is undone.
    """

    guards: tuple[Guard, ...] = ()
    otherwise: str
    hysteresis: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Threads:
    """A request may be up to `count` rows; `by` says which begin and end, and with which text."""

    count: int
    by: Entry


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything needed to decode: print it, edit it, parse it, price it, run it."""

    name: str
    models: tuple[Model, ...] = ()
    assumptions: Assumptions = Assumptions()
    states: tuple[StateDeclaration, ...] = ()
    rounds: tuple[Round, ...] = ()
    schedule: Schedule | None = None
    threads: Threads | None = None

    __hash__ = _hashed_once

    def round(self, name: str) -> Round:
        """The round called `name`.

        Raises:
            UsageError: when the plan has no such round.
        """
        for candidate in self.rounds:
            if candidate.name == name:
                return candidate
        known = ", ".join(candidate.name for candidate in self.rounds)
        raise UsageError(
            f"no round is called '{name}'", where=f"plan {self.name}", remedy=f"It has: {known}."
        )

    def state(self, name: State) -> StateDeclaration | None:
        """The declaration of a state, or None."""
        return next((state for state in self.states if state.name == name), None)

    def with_snapshots(self, models: Collection[str]) -> Plan:
        """The plan with `rollback=snapshot` at the caches of models with recurrent layers."""
        states = tuple(
            replace(state, rollback="snapshot")
            if isinstance(state, CacheState) and state.model in models and not state.rollback
            else state
            for state in self.states
        )
        return self if states == self.states else replace(self, states=states)

    @property
    def caches(self) -> tuple[CacheState, ...]:
        """Its caches and views of caches."""
        return tuple(state for state in self.states if isinstance(state, CacheState))

    @property
    def greedy_only(self) -> bool:
        """True when it is right at temperature 0 only: it assumes so, or some rule is."""
        if self.assumptions.greedy:
            return True
        rules = [op.judges_by for op in walk_plan(self)]
        return any(rule is not None and rule.name == "greedy" for rule in rules)

    @property
    def models_run(self) -> tuple[str, ...]:
        """Names of the models some forward runs, in order of first use."""
        names = [op.runs for op in walk_plan(self) if op.runs is not None]
        return tuple(dict.fromkeys(names))


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """All ops in program order, those of regions after the op that holds them."""
    for op in ops:
        yield op
        if op.body is not None:
            yield from walk(op.body.ops)


def walk_plan(plan: Plan) -> Iterator[Op]:
    """All ops of all rounds."""
    for item in plan.rounds:
        yield from walk(item.ops)
