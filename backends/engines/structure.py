"""What a plan asks of the engine that serves it, read off its ops: who drafts, which shape, when.

Nothing here knows a method: two methods whose plans draft alike have the same structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, TypeAlias

from specplan.backends.engines.endings import ENDING, read_ending
from specplan.ir.formula import formula_names
from specplan.ir.ops import Accept, Forward, Grow, Lookup
from specplan.ir.plan import (
    MODULE_PREFIX,
    CacheState,
    Plan,
    Round,
    SourceState,
    TrackState,
    walk,
)
from specplan.ir.schedule import select_round
from specplan.ir.types.infer import Step, infer_round
from specplan.ir.types.value_types import LogitsType, TreeType

Drafter: TypeAlias = Literal[
    "none", "model", "head", "modules", "block", "text", "automaton", "past", "first_layers",
    "some_layers", "plain_heads", "other",
]  # fmt: skip
Shape: TypeAlias = Literal["empty", "chain", "static tree", "dynamic tree"]

DRAFTERS: dict[Drafter, str] = {
    "none": "nothing: plain decoding",
    "model": "a separate draft model",
    "head": "a head over the target's hidden states",
    "modules": "the target's own drafting modules",
    "block": "a drafter of whole blocks over the target's hidden states",
    "text": "lookup in the request's own text",
    "automaton": "the longest match of any length in the request's own text",
    "past": "lookup in past outputs",
    "first_layers": "the target's first layers",
    "some_layers": "the target with layers left out",
    "plain_heads": "heads without attention, such as Medusa heads",
    "other": "another way of drafting, or several together",
}
"""Who may draft, in words."""

USUAL = frozenset({
    "root", "grow", "lookup", "place", "relabel", "pick", "prune", "forward", "uniform", "accept",
    "emit", "commit", "update", "repeat", "segment",
})  # fmt: skip
"""Ops of which every engine has a fixed composition of its own."""
_LOOKUPS: dict[str, Drafter] = {"text": "text", "automaton": "automaton", "log": "past"}
"""Who drafts, by the kind of source."""
LOSSLESS_RULES = frozenset({"greedy", "token", "recursive"})


@dataclass(frozen=True)
class Drafting:
    """What one round drafts.

    Attributes:
        drafter: who drafts.
        shape: of the drafted tokens.
        tokens: drafted tokens that are verified, at most.
        depth: levels of them.
        widest: most children of a node.
        models: roles of the models that draft beside the target.
        drawn: children are drawn from the drafter's law rather than being its best ranks.
        match: shortest and longest suffix that is looked up, in tokens.
        exit_layer: layers of the target that run before it drafts; 0 for other drafters.
        block: tokens that one pass drafts; 0 for drafters of one level a pass.
        rule: that accepts the tokens, where it is not one that judges them one by one.
        bar: probability of a drafted token below which drafting ends; 0 for no such bar.
        first: drafted tokens of the first round, where the length then grows by two after a round
            that was accepted whole, and shrinks by one after any other; 0 for a fixed length.
        unusual: what no engine has, in words.
    """

    drafter: Drafter
    shape: Shape
    tokens: int = 0
    depth: int = 0
    widest: int = 1
    models: tuple[str, ...] = ()
    drawn: bool = False
    match: tuple[int, ...] = ()
    exit_layer: int = 0
    block: int = 0
    rule: str = ""
    bar: float = 0.0
    first: int = 0
    unusual: tuple[str, ...] = ()

    @property
    def own_weights(self) -> bool:
        """Whether the drafter is a checkpoint beside the target's."""
        return self.drafter in ("model", "head", "block")

    @property
    def usual_form(self) -> str:
        """The form of checkpoint that drafts in this way (`checkpoints.FORMS`); "" without one."""
        if self.drafter == "model":
            return "pard" if self.block else "model"
        return {"head": "eagle", "block": "dflash"}.get(self.drafter, "")


@dataclass(frozen=True)
class Structure:
    """What a plan asks for.

    Attributes:
        rounds: by name.
        axes: what its schedule looks at (`batch`, `context`, ...); empty without a schedule.
        ranges: first and last batch size (None: no end) and the round that runs there; what the
            schedule decides by anything but the batch is left out.
        largest_batch: that the plan was made for.
    """

    rounds: dict[str, Drafting]
    axes: frozenset[str]
    ranges: tuple[tuple[int, int | None, str], ...]
    largest_batch: int

    @property
    def longest(self) -> Drafting:
        """The round that drafts most tokens."""
        return max(self.rounds.values(), key=lambda drafting: drafting.tokens)

    @property
    def lengths(self) -> tuple[tuple[int, int | None, int], ...]:
        """First and last batch size, and the tokens drafted there; neighbours differ."""
        ranges = [(first, last, self.rounds[name].tokens) for first, last, name in self.ranges]
        runs = [list(run) for _, run in groupby(ranges, key=lambda item: item[2])]
        return tuple((run[0][0], run[-1][1], run[0][2]) for run in runs)


@lru_cache(maxsize=2048)
def read_structure(plan: Plan) -> Structure:
    """The structure of a verified plan; remembered, since each engine asks for it again."""
    batch = plan.assumptions.batch
    most = 1 if batch is None else int(batch.high)
    used = dict.fromkeys(_rounds_used(plan))
    axes: frozenset[str] = frozenset()
    if plan.schedule is not None and len(used) > 1:
        axes = frozenset[str]().union(
            *(formula_names(str(g.formula)) for g in plan.schedule.guards)
        )
    return Structure(
        {name: read_drafting(plan, plan.round(name)) for name in used},
        axes,
        _ranges(plan, most),
        most,
    )


def read_drafting(plan: Plan, item: Round) -> Drafting:
    """What one round of a verified plan drafts."""
    steps = infer_round(plan, item).steps
    judged = [step for step in steps if isinstance(step.op, Accept)]
    unusual = tuple(dict.fromkeys(_unusual(plan, item, judged)))
    if len(judged) != 1:
        return Drafting("other", "empty", unusual=unusual)
    accept = judged[0]
    assert isinstance(accept.op, Accept)
    tree = accept.reads[accept.op.tree]
    rows = None if accept.op.target is None else accept.reads[accept.op.target]
    assert isinstance(tree, TreeType)
    if not isinstance(rows, LogitsType):
        return Drafting("other", "empty", unusual=unusual)
    who = {drafter for step in steps for drafter in _drafters(plan, step, accept.op, rows.model)}
    if not tree.nodes and not who:
        return Drafting("none", "empty", unusual=unusual)
    drafter: Drafter = who.pop() if len(who) == 1 else "other"
    rule = accept.op.rule.name
    return Drafting(
        drafter,
        _shape(tree),
        tree.nodes,
        tree.depth,
        unusual=unusual,
        drawn=tree.drawn,
        rule="" if rule in LOSSLESS_RULES else rule,
        **_details(plan, steps, rows.model),
        **read_ending(plan, item),
    )


def _rounds_used(plan: Plan) -> Iterator[str]:
    if plan.schedule is None:
        yield plan.rounds[0].name
        return
    yield from (guard.round for guard in plan.schedule.guards)
    yield plan.schedule.otherwise


def _ranges(plan: Plan, most: int) -> tuple[tuple[int, int | None, str], ...]:
    """Ranges of batch sizes by round, at the smallest context; the last one has no end."""
    names = [select_round(plan, batch=batch, context=1) for batch in range(1, most + 1)]
    ranges: list[tuple[int, int | None, str]] = []
    first = 1
    for name, run in groupby(names):
        last = first + len(list(run)) - 1
        ranges.append((first, None if last == most else last, name))
        first = last + 1
    return tuple(ranges)


def _shape(tree: TreeType) -> Shape:
    if not tree.nodes:
        return "empty"
    if tree.is_chain:
        return "chain"
    return "dynamic tree" if tree.parents is None else "static tree"


def _drafters(plan: Plan, step: Step, accept: Accept, target: str) -> Iterator[Drafter]:
    """Who drafts in this step; nobody in most."""
    match step.op:
        case Lookup(source=source):
            state = plan.state(source)
            kind = state.kind.name if isinstance(state, SourceState) else str(source)
            yield _LOOKUPS.get(kind, "other")
        case Forward() as op if accept.target not in op.results:
            yield from _forward_drafters(plan, op, target)


def _forward_drafters(plan: Plan, op: Forward, target: str) -> Iterator[Drafter]:
    if op.model == target:
        yield (
            "some_layers"
            if op.skip or len(op.layers) > 1
            else ("first_layers" if op.layers and op.layers[0].start == 0 else "other")
        )
        return
    track = None if op.features is None else plan.state(op.features)
    reads_target = isinstance(track, TrackState) and track.model == target
    if op.model.startswith(MODULE_PREFIX):
        yield "modules"
    elif op.most_levels > 1 and reads_target:
        yield "block" if op.cache is not None else "plain_heads"
    elif track is not None and op.cache is None:
        yield "plain_heads"
    elif reads_target:
        yield "head"
    else:
        yield "head" if track is not None else "model"


def _details(plan: Plan, steps: Sequence[Step], target: str) -> dict[str, Any]:
    """What engines need to know of a round, besides the drafter and the tree."""
    details: dict[str, Any] = {}
    models: list[str] = []
    widest = 1
    for step in steps:
        match step.op:
            case Forward() as op:
                models += [op.model] if op.model != target else []
                if op.model == target and op.layers and op.layers[0].start == 0:
                    details["exit_layer"] = op.layers[0].stop
                if op.most_levels > 1 and op.cache is not None:
                    details["block"] = op.most_levels
            case Grow(children=children) | Lookup(children=children):
                counts = children if isinstance(children, tuple) else (children,)
                widest = max(widest, *counts)
        if isinstance(step.op, Lookup):
            details["match"] = step.op.match
    return details | {"models": tuple(dict.fromkeys(models)), "widest": widest}


def _unusual(plan: Plan, item: Round, judged: Sequence[Step]) -> Iterator[str]:
    caches = [state for state in plan.states if isinstance(state, CacheState)]
    if any(state.view or state.policy or state.budget for state in caches):
        yield "a reduced view of a cache"
    if any(state.rollback == "replay" for state in caches):
        yield "running accepted tokens again"
    if len(judged) != 1:
        yield f"{len(judged)} acceptances in a round"
    ending = read_ending(plan, item)
    for op in walk(item.ops):
        if isinstance(op, Forward) and op.policy is not None:
            yield "heads that read a part of the text"
        region = op.body
        if region is not None and region.until is not None and not ending:
            yield "drafting that stops early by what was drafted"
        if op.keyword not in USUAL and not (ending and isinstance(op, ENDING)):
            yield f"the op {op.keyword}"
