"""`grow`: children of nodes, ranked or drawn from their rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.beam import beam
from specplan.backends.ops.pick import best_columns
from specplan.backends.ops.reshaping import counts_of, extended, selected
from specplan.backends.ops.values import Nodes, Rows, Tree, nodes_of
from specplan.ir.ops import Grow
from specplan.ir.types.value_types import TreeType
from specplan.runtime.races import exponentials, race
from specplan.runtime.sampling import SamplingSettings, best, draw, draw_distinct, probabilities


def grow(
    op: Grow,
    tree: Tree,
    at: Tree | Nodes,
    logits: Rows,
    by: Tensor | None,
    *,
    settings: SamplingSettings,
    kind: TreeType,
    remembers: bool = False,
) -> Tree:
    """Children below nodes.

    Args:
        op: counts of children, how they come about, and how many of them stay.
        tree: what grows.
        at: the parents.
        logits: of the parents, or of more nodes.
        by: uniforms `[B, draws]`, parent by parent; for shared draws `[B, levels]`, by the depth
            of the parent.
        settings: of the requests.
        kind: what the verifier knows of the result.
        remembers: whether the rows are asked for again, see `Tree.rows`.
    """
    at, chain = nodes_of(at), kind.is_chain
    rows, there = logits.ahead(at)
    if remembers:
        tree = replace(tree, rows=(*tree.rows, Rows(at.keys, rows, there, at, False)))
    counts = counts_of(op.children, at.width)
    if not any(counts):
        return tree
    if op.how == "draw_distinct" and op.keep is not None:
        assert by is not None, "the verifier lets no draw without uniforms through"
        return beam(tree, at, rows, there, by, counts=counts, keep=op.keep, settings=settings)
    tokens, laws = _tokens(op, tree, at, rows, by, counts, settings)
    parents, live = at.columns, at.live_in(tree)
    live = live if there is at.live else there & live
    above = [number for number, count in enumerate(counts) for _ in range(count)]
    single, place = set(counts) == {1}, None
    if not single or laws is not None or tree.scores is not None:
        place = torch.tensor(above, device=tokens.device)
    if not single and place is not None:
        parents, live = parents.index_select(1, place), live.index_select(1, place)
    own = None
    if tree.scores is not None and place is not None:
        total = rows.logsumexp(2).index_select(1, place)
        own = rows.flatten(1).gather(1, place * rows.shape[2] + tokens) - total
    drawn = None if laws is None or place is None else (place + tree.laws_held).expand_as(tokens)
    grown = extended(
        tree,
        parents,
        tokens,
        live,
        own=own,
        law_row=drawn,
        at=at if single else None,
        laws=tree.laws if laws is None else (*tree.laws, laws),
        distinct=op.how in ("draw_distinct", "shared")
        if laws is not None and max(counts) > 1
        else tree.distinct,
        widest=tree.widest_below(at, max(counts)),
        chain=chain,
        layered=tree.layered
        and tree.are_tips(at)
        and (max(counts) == 1 or op.how in ("best", "draw_distinct")),
        sure=tree.sure and logits.sure,
        in_order=tree.in_order and chain and at.is_last_of(tree),
    )
    return grown if op.keep is None or op.keep >= len(above) else _best_of(grown, op.keep)


def _tokens(
    op: Grow,
    tree: Tree,
    at: Nodes,
    rows: Tensor,
    by: Tensor | None,
    counts: tuple[int, ...],
    settings: SamplingSettings,
) -> tuple[Tensor, Tensor | None]:
    """Tokens `[B, C]` of all children, and the laws `[B, W, V]` that they were drawn from."""
    if op.how == "best":
        ranked = best(rows, max(counts))
        if set(counts) == {ranked.shape[2]}:
            return ranked.flatten(1), None
        return torch.cat([ranked[:, i, :count] for i, count in enumerate(counts)], 1), None
    assert by is not None, "the verifier lets no draw without uniforms through"
    laws = probabilities(rows, settings)
    if op.how == "draw" and set(counts) == {1}:
        return draw(laws, by[:, : len(counts)]), laws
    if op.how == "shared":
        depths = at.take(tree.depths) if at.tree is tree else at.take(at.tree.depths)
        numbers = by.gather(1, depths.clamp(max=by.shape[1] - 1))
    drawn, start = [], 0
    for place, count in enumerate(counts):
        if not count:
            continue
        mine, numbers_of = laws[:, place], by[:, start : start + count]
        if op.how == "shared":
            drawn.append(race(mine, exponentials(numbers[:, place], mine.shape[1]), count))
        elif op.how == "draw_distinct":
            drawn.append(draw_distinct(mine[:, None], numbers_of[:, None])[:, 0])
        else:
            drawn.append(draw(mine[:, None].expand(-1, count, -1), numbers_of))
        start += count
    return torch.cat(drawn, 1), laws


def _best_of(tree: Tree, most: int) -> Tree:
    """The tree with the best of its newest nodes alone."""
    start = tree.newest.start
    old = torch.arange(1, start, device=tree.tokens.device).expand(len(tree.tokens), -1)
    new, live = best_columns(tree, Nodes(tree, tree.newest, root=False), most)
    left = selected(
        tree,
        torch.cat([old, new], 1),
        torch.cat([torch.ones_like(old, dtype=torch.bool), live], 1),
        levels=tree.levels,
    )
    return replace(left, newest=range(start, left.columns), layered=tree.layered)
