"""What an acceptance rule takes of a tree: its reference form, on one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specplan.ir.meaning import Judged, Logits, Tree
from specplan.ir.ops import Accept
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.types.value_types import LogitsType, TreeType
from specplan.runtime.acceptance import RULES, DraftedTree

if TYPE_CHECKING:
    from specplan.backends.oracle.world import OneRequest


def judged(
    world: OneRequest,
    op: Accept,
    tree: Tree,
    start: int,
    logits: Logits,
    by: Sequence[float] | None,
) -> Judged:
    """See `specplan.ir.world.World.judged`."""
    order, most = _order(world, op, tree, start)
    place = {start: -1, **{number: i for i, number in enumerate(order)}}
    vectors = [logits.own(tree.path(number)) for number in (start, *order)]
    blank = torch.zeros_like(cast(Tensor, vectors[0]))
    rule, declared = RULES[op.rule.name], BUILTIN.find("rule", op.rule.name)
    assert declared is not None
    judges_probabilities = rule.TARGET == "probabilities"
    target = torch.stack([
        blank if vector is None else world.probabilities(vector) if judges_probabilities else vector
        for vector in vectors
    ])  # fmt: skip
    numbers = None
    if by is not None:
        bonus = by[most : most + 1] or by[-1:]
        numbers = torch.tensor([*by[: len(order)], *bonus], dtype=torch.float64)[None]
        if declared.draws_by_place:
            numbers = torch.tensor(by, dtype=torch.float64)[None]
    drafted = _drafted(world, tree, order, place, vectors)
    given = declared.arguments(op.rule)
    verdict = rule.accept_reference(drafted, target[None], numbers, **given)
    count = int(verdict.accepted[0])
    path = tuple(order[i] for i in verdict.path[0].tolist()[:count])
    ended = bool(path) and logits.own(tree.path(path[-1])) is None
    return Judged(tree, path, None if ended else int(verdict.bonus[0]), start)


def _order(world: OneRequest, op: Accept, tree: Tree, start: int) -> tuple[list[int], int]:
    """Nodes below `start` in the order of their uniforms, and the place of the bonus's.

    The bonus has the number after those that may be judged at most, so that what is drawn does
    not depend on how long others went on: after those of all nodes. In a chain dead nodes take no
    number, so that there these are no more than the nodes that logits are asked for.
    """
    order = tree.below([start])
    kind = world.types.operand(op, op.tree, world.trip)
    vectors = world.types.operand(op, op.target, world.trip)
    assert isinstance(kind, TreeType)
    most = len(order)
    if op.at is None:
        most = kind.nodes
    if kind.is_chain:
        order = [i for i in order if i in tree.living]
        if op.at is None and isinstance(vectors, LogitsType):
            most = min(most, vectors.width)
    return order, most


def _drafted(
    world: OneRequest,
    tree: Tree,
    order: list[int],
    place: Mapping[int, int],
    vectors: list[Tensor | None],
) -> DraftedTree:
    """The nodes `order` as a rule reads them; `vectors` are logits of their start and of each."""
    nodes = [tree.nodes[number] for number in order]
    probs: list[Tensor] = []
    index: dict[int, int] = {}
    for node in nodes:
        if node.drawn and node.logits is not None and id(node.logits) not in index:
            index[id(node.logits)] = len(probs)
            probs.append(world.probabilities(node.logits))
    parents = [place.get(node.parent, -1) for node in nodes]
    siblings = Counter(node.parent for node in nodes)
    live = [
        number in tree.living and vectors[parent + 1] is not None
        for number, parent in zip(order, parents, strict=True)
    ]
    return DraftedTree(
        tokens=torch.tensor([[node.token for node in nodes]], dtype=torch.int64).view(1, -1),
        parents=tuple(parents),
        live=torch.tensor([live], dtype=torch.bool).view(1, -1),
        probs=torch.stack(probs)[None] if probs else None,
        probs_index=tuple(index[id(n.logits)] if n.drawn else -1 for n in nodes) if probs else None,
        distinct=any(
            node.how != "draw" and siblings[node.parent] > 1 for node in nodes if node.drawn
        ),
    )
