"""Rounds whose tree `pools` price, read off their ops: a beam grows it, or one lookup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from specplan.ir.ops import (
    Accept,
    Commit,
    Emit,
    Forward,
    Grow,
    Lookup,
    Op,
    Pick,
    Prune,
    Root,
    Uniform,
)
from specplan.ir.types.infer import RoundTypes, Step
from specplan.ir.types.value_types import NodesType, TreeType
from specplan.ir.values import Value

_OPS = (Root, Grow, Pick, Prune, Forward, Uniform, Accept, Emit, Commit)


@dataclass(frozen=True, slots=True)
class BeamPool:
    """How a tree grows.

    Attributes:
        beam: children of every node that gets any, and nodes of a layer that do.
        layers: how often it grows.
        nodes: those verified, the most probable ones.
        cache: of the model that drafts; it holds the nodes that got children.
    """

    beam: int
    layers: int
    nodes: int
    cache: str


def read_pool(types: RoundTypes) -> BeamPool | None:
    """How a round's tree grows; None where it grows in another way.

    The root gets the `beam` best children, then, layer after layer, so does each of the `beam`
    most probable new nodes; at last the most probable nodes of all are kept, or all.
    """
    if not all(isinstance(step.op, _OPS) for step in types.steps):
        return None
    if any(isinstance(step.op, Forward) and step.op.write != "exact" for step in types.steps):
        return None
    made: dict[Value, Op] = {}
    grown: list[tuple[int, str] | None] = []
    for step in types.steps:
        if isinstance(step.op, Grow):
            grown.append(_layer(step, step.op, made, first=not grown))
        for name in step.op.results:
            made[name] = step.op
    layers = set(grown)
    if len(layers) != 1 or None in layers:
        return None
    beam, cache = cast(tuple[int, str], layers.pop())
    judged = [step for step in types.steps if isinstance(step.op, Accept)]
    reshaped = [step.op for step in types.steps if isinstance(step.op, Prune)]
    if len(judged) != 1 or len(reshaped) > 1 or not all(_reranks(op, made) for op in reshaped):
        return None
    tree = judged[0].reads[cast(Accept, judged[0].op).tree]
    assert isinstance(tree, TreeType)
    return BeamPool(beam, len(grown), tree.nodes, cache)


def _layer(step: Step, op: Grow, made: dict[Value, Op], *, first: bool) -> tuple[int, str] | None:
    """Beam, and cache of the model that drafts; None for another layer than a beam's."""
    rows, at, count = made.get(op.logits), step.reads[op.at], op.children
    if op.how != "best" or op.keep is not None or not isinstance(count, int):
        return None
    if not isinstance(rows, Forward) or rows.nodes != (op.at,) or rows.cache is None:
        return None
    chosen = made.get(op.at)
    if first:
        alone = isinstance(at, TreeType) and at.nodes == 0
    else:
        newest = isinstance(chosen, Pick) and (chosen.of, chosen.by) == ("newest", "path")
        alone = newest and isinstance(at, NodesType) and cast(Pick, chosen).best == count
    return (count, str(rows.cache)) if alone else None


def _reranks(op: Prune, made: dict[Value, Op]) -> bool:
    chosen = made.get(op.to)
    return (
        isinstance(chosen, Pick) and (chosen.of, chosen.by) == ("all", "path") and bool(chosen.best)
    )


def read_merged(types: RoundTypes) -> tuple[int, int] | None:
    """Levels and nodes of a judged tree that one lookup below the root merged; None for others."""
    judged = [step.op for step in types.steps if isinstance(step.op, Accept)]
    for step in types.steps:
        if isinstance(step.op, Lookup) and [op.tree for op in judged] == [*step.op.results]:
            before, (merged,) = step.reads[step.op.tree], step.gives
            assert isinstance(before, TreeType) and isinstance(merged, TreeType)
            if not before.nodes and merged.parents is None:
                return step.op.length, merged.nodes
    return None
