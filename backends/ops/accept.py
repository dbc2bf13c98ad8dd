"""`accept`: a tree is judged by a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from specplan.backends.ops.pick import at_and_below
from specplan.backends.ops.tensors.trees import first_columns
from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree, nodes_of
from specplan.ir.ops import Accept
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.types.value_types import TreeType, Type
from specplan.ir.values import Value
from specplan.runtime.acceptance import RULES, DraftedTree, Judged
from specplan.runtime.masks import first_true, marked
from specplan.runtime.sampling import SamplingSettings, probabilities

Form: TypeAlias = Callable[[str], Callable[..., Judged]]
"""From a rule's name to one of its forms: see `specplan.runtime.acceptance`."""


def fastest(rule: str) -> Callable[..., Judged]:
    """The form of a rule that is fastest where it runs."""
    return RULES[rule].accept  # type: ignore[no-any-return]


def accept(
    op: Accept,
    tree: Tree,
    target: Logits | None,
    by: Tensor | None,
    at: Tree | Nodes | None,
    *,
    settings: SamplingSettings,
    reads: Mapping[Value, Type],
    most: int | None = None,
    form: Form = fastest,
) -> Path:
    """What a rule accepts.

    A node without a row ends its path, and no bonus follows it: what is below has a row in a later
    round. Where the node that is judged below has no row itself, nothing is accepted.

    Args:
        op: names the rule.
        tree: what was drafted.
        target: logits of the root and of nodes; None for the rule that accepts unseen.
        by: uniforms; number i judges node i in order, and number `most` draws the bonus.
        at: one node of each request to judge below; the root when None.
        settings: of the requests.
        reads: what the verifier knows of the operands.
        most: nodes that the round judges at most; None: as many as there are.
        form: of the rule.
    """
    at = None if at is None else nodes_of(at)
    if target is None:
        return _unseen(tree, at)
    part = _part(tree, at, target.keys.shape[1])
    logits, known = target.of(part.nodes)
    rule, live = RULES[op.rule.name], part.live
    sure = target.sure and part.nodes.same(target.nodes)
    if live.shape[1] and not sure:
        live = live & known.gather(1, part.parents)[:, 1:]
    kind = reads[op.tree]
    shape = kind.parents if isinstance(kind, TreeType) and part.whole else None
    shape = None if shape is None or len(shape) != tree.size else shape
    drafted = DraftedTree(
        tokens=part.tokens,
        parents=part.parents[:, 1:] - 1 if shape is None else shape,
        live=live,
        probs=tree.all_probs,
        probs_index=None if not tree.probs else part.probs_row,
        distinct=tree.distinct,
        levels=min(part.levels, live.shape[1]),
        widest=None if shape is not None else min(1 if tree.chain else tree.widest, tree.size),
    )
    declared = BUILTIN.find("rule", op.rule.name)
    assert declared is not None
    width = live.shape[1]
    last = width if most is None else most
    if by is not None and (last, width + 1) != (width, by.shape[1]):
        last = min(last, by.shape[1] - 1)
        by = torch.cat([by[:, :width], by[:, last : last + 1]], 1)
    target_vectors = probabilities(logits, settings) if rule.TARGET == "probabilities" else logits
    judged = form(op.rule.name)(drafted, target_vectors, by, **declared.arguments(op.rule))
    return _path(part, judged, None if sure else known)


@dataclass(frozen=True)
class _Part:
    """What is judged: a tree, or what hangs below one node of each request.

    Attributes:
        nodes: the node that is judged below, and those that are judged.
        parents: places in `nodes`, int64 `[B, 1 + M]`.
        tokens: of the judged nodes, int64 `[B, M]`.
        live: which of them there are.
        probs_row: of the judged nodes.
        levels: no node is deeper.
        whole: these are all nodes of the tree, column by column.
    """

    nodes: Nodes
    parents: Tensor
    tokens: Tensor
    live: Tensor
    probs_row: Tensor
    levels: int
    whole: bool = False


def _whole(tree: Tree) -> _Part:
    return _Part(
        tree.everything, tree.parents, tree.tokens[:, 1:], tree.live[:, 1:], tree.probs_row[:, 1:],
        tree.levels, whole=True,
    )  # fmt: skip


def _part(tree: Tree, at: Nodes | None, most: int) -> _Part:
    """What hangs below a node; of chains as many as there may be rows for, by their depths."""
    if at is None and (not tree.chain or (tree.in_order and tree.size <= most)):
        return _whole(tree)
    over = Nodes(tree, range(tree.columns)) if at is None else at_and_below(tree, at)
    at = Nodes(tree, range(1)) if at is None else at
    width = over.width - 1
    if tree.chain:
        width = min(width, most)
    mask = marked(over.columns, over.live, tree.columns)
    mask = mask.scatter(1, at.columns, False)
    order, live = first_columns(mask & tree.live, width, tree.depths if tree.chain else None)
    start = at.columns
    columns = torch.cat([start, order], 1)
    if tree.chain:
        steps = torch.arange(width + 1, device=order.device)
        parents = (steps - 1).clamp(min=0).expand_as(columns)
    else:
        places = torch.arange(width + 1, device=order.device).expand_as(columns)
        place_of = torch.zeros_like(tree.parents).scatter(1, columns, places)
        parents = place_of.gather(1, tree.parents.gather(1, columns))
        parents = torch.cat([torch.zeros_like(start), parents[:, 1:]], 1)
    return _Part(
        nodes=Nodes(tree, columns),
        parents=parents,
        tokens=tree.tokens.gather(1, order),
        live=live & at.live,
        probs_row=tree.probs_row.gather(1, order),
        levels=width if tree.chain else tree.levels,
    )


def _path(part: _Part, judged: Judged, known: Tensor | None) -> Path:
    """The accepted nodes by their columns, and a bonus where the last of them has a row.

    Below a node without a row nothing was live, so that nothing is accepted there. `known` says
    which have one, bool `[B, 1 + M]`; None where all do.
    """
    tree, accepted, bonus = part.nodes.tree, judged.accepted, judged.bonus[:, None]
    nodes, tokens, last = judged.path, bonus, accepted[:, None]
    if judged.path.shape[1]:
        places = judged.path.clamp(min=0)
        tokens = torch.cat([part.tokens.gather(1, places), bonus], 1)
        tokens = tokens.scatter(1, last, bonus)
        places = places + 1
        if known is not None:
            last = torch.cat([torch.zeros_like(last), places], 1).gather(1, last)
        nodes = places if part.nodes.same(tree.everything) else part.nodes.columns.gather(1, places)
    return Path(
        nodes=nodes,
        tree_keys=tree.keys,
        tokens=tokens,
        accepted=accepted,
        counts=accepted + (1 if known is None else known.gather(1, last)[:, 0]),
        start=tree.parents[:, :1] if part.whole else part.nodes.columns[:, :1],
    )


def _unseen(tree: Tree, at: Nodes | None) -> Path:
    """The first live node below a node, the root where none is given, and so on down."""
    start = torch.zeros_like(tree.parents[:, :1]) if at is None else at.columns[:, :1]
    here, steps = start, []
    going = torch.ones_like(here, dtype=torch.bool) if at is None else at.live[:, :1]
    drafted = torch.arange(tree.columns, device=here.device) > 0
    for _ in range(tree.levels):
        children = (tree.parents == here) & tree.live & drafted & going
        going = children.any(1, keepdim=True)
        here = torch.where(going, first_true(children), here)
        steps.append(here.where(going, 0))
    nodes = torch.cat([tree.parents[:, :0], *steps], 1)
    count = (nodes > 0).sum(1)
    tokens = torch.cat([tree.tokens.gather(1, nodes), torch.zeros_like(here)], 1)
    return Path(nodes, tree.keys, tokens, count, count, start)
