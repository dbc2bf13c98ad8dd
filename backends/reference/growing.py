"""The op that grows trees from rows.

A node's path score is the sum of log-probabilities along its path, of the rows that its tokens
were ranked by, as they are: at temperature 1 and with no token left out, whatever the request asks
for. EAGLE-2 (arXiv 2406.16858, section 4.1) scores so: the law of a greedy request would tell no
second choice from another.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.reference.lengthening import continue_chains, laws_with
from specplan.backends.reference.values import Nodes, Rows, Tree, per_request, shared_by_all
from specplan.ir.ops import Grow
from specplan.ir.types import ROOT
from specplan.runtime.races import exponentials, race
from specplan.runtime.sampling import SamplingSettings, best, draw, draw_distinct, law


def grow(
    settings: SamplingSettings,
    op: Grow,
    tree: Tree,
    at: Nodes,
    rows: Rows,
    by: Tensor | None,
    *,
    scored: bool = False,
) -> Tree:
    """Children below nodes: ranked, drawn, drawn without replacement, or by a shared race.

    Args:
        settings: of the requests.
        op: counts of children and the way they come about.
        tree: the tree that grows.
        at: the parents.
        rows: logits of the parents.
        by: `[B, draws]` uniforms, parent by parent; for shared draws `[B, levels]`.
        scored: ranked children get path scores.
    """
    logits = rows.of(at.indices)
    width = logits.shape[1]
    counts = (op.children,) * width if isinstance(op.children, int) else op.children
    if at.tips and tree.in_place:
        return _lengthened(settings, op, tree, at, logits, by)
    if op.how == "best":
        ranked = best(logits, max(counts, default=0)) if any(counts) else logits[:, :, :0].long()
        scores = _scores(tree, at, logits, ranked) if scored else None
        return extended(
            tree, at, counts, _firsts(ranked, counts),
            None if scores is None else _firsts(scores, counts),
        )  # fmt: skip
    if by is None:
        raise AssertionError("the verifier lets no draw without uniforms through")
    laws = law(logits, settings)
    drawn, start = [], 0
    for place, count in enumerate(counts):
        mine, uniforms = laws[:, place], by[:, start : start + count]
        if op.how == "shared":
            number = by[:, _level(tree, at, place)]
            drawn.append(race(mine, exponentials(number, mine.shape[1]), count))
        elif op.how == "draw_distinct":
            drawn.append(draw_distinct(mine[:, None], uniforms[:, None])[:, 0])
        else:
            drawn.append(draw(mine[:, None].expand(-1, count, -1), uniforms))
        start += count
    known = 0 if tree.laws is None else tree.laws.shape[1]
    grown = extended(tree, at, counts, torch.cat(drawn, 1))
    index = [known + place for place, count in enumerate(counts) for _ in range(count)]
    return replace(
        grown,
        laws=laws if tree.laws is None else torch.cat([tree.laws, laws], 1),
        law_index=(*shared_by_all(tree.law_index), *index),
        distinct=op.how != "draw" if max(counts) > 1 else tree.distinct,
    )


def _lengthened(
    settings: SamplingSettings, op: Grow, tree: Tree, at: Nodes, logits: Tensor, by: Tensor | None
) -> Tree:
    """A chain with one more node at the tip of each request: ranked, or drawn from `[B, 1, V]`."""
    place = per_request(at.indices, tree.tokens) + 1
    live = torch.ones_like(place, dtype=torch.bool)
    if op.how == "best":
        return continue_chains(tree, place[:, 0], best(logits, 1)[:, :, 0], live, 1)
    assert by is not None, "the verifier lets no draw without uniforms through"
    new = law(logits, settings)
    longer = continue_chains(tree, place[:, 0], draw(new, by[:, :1]), live, 1)
    laws = laws_with(tree, longer.size, place, new)
    index = per_request(longer.law_index, tree.tokens).scatter(1, place, place)
    return replace(longer, laws=laws, law_index=index)


def _firsts(ranked: Tensor, counts: tuple[int, ...]) -> Tensor:
    """The first `counts[i]` of row i of `[B, R, C]`, row after row: `[B, sum of counts]`."""
    if all(count == ranked.shape[2] for count in counts):
        return ranked.flatten(1)
    return torch.cat([ranked[:, i, :count] for i, count in enumerate(counts)], 1)


def _scores(tree: Tree, at: Nodes, logits: Tensor, ranked: Tensor) -> Tensor | None:
    """Path scores `[B, R, C]` of children `ranked`; None below nodes that have none."""
    if tree.size and tree.scores is None:
        return None
    # a logsumexp is never below a logit, so that no child scores better than its parent
    own = logits.gather(2, ranked) - logits.logsumexp(2, keepdim=True)
    parents = per_request(at.indices, tree.tokens)
    above = torch.zeros_like(logits[:, :1, 0])
    if tree.scores is not None:
        above = torch.cat([above, tree.scores], 1)
    return own + above.gather(1, parents + 1)[:, :, None]


def _level(tree: Tree, at: Nodes, place: int) -> int:
    """Depth of a node whose place in the tree all requests share; 0 for the root."""
    node = shared_by_all(at.indices)[place]
    return 0 if node == ROOT else shared_by_all(tree.depths)[node]


def extended(
    tree: Tree, at: Nodes, counts: tuple[int, ...], tokens: Tensor, scores: Tensor | None = None
) -> Tree:
    """The tree with `counts[i]` children below node i of `at`, live where it is; point laws."""
    if not any(counts):
        return tree
    places = [place for place, count in enumerate(counts) for _ in range(count)]
    new = len(places)
    if scores is not None and tree.scores is not None:
        scores = torch.cat([tree.scores, scores], 1)
    return replace(
        _shaped(tree, at, places),
        tokens=torch.cat([tree.tokens, tokens], 1) if tree.size else tokens,
        live=_live_below(tree, at, places),
        law_index=(*shared_by_all(tree.law_index), *(-1 for _ in places)),
        newest=tuple(range(tree.size, tree.size + new)),
        widest=max(tree.widest, *counts),
        scores=scores,
    )


def _live_below(tree: Tree, at: Nodes, places: list[int]) -> Tensor | None:
    """Which nodes are live once each of these places of `at` has a child; None when all are."""
    if tree.live is None:
        return None
    begun = torch.cat([torch.ones_like(tree.live[:, :1]), tree.live], 1)  # the root first
    above = per_request(at.indices, tree.tokens)[:, places]
    return torch.cat([tree.live, begun.gather(1, above + 1)], 1)


def _shaped(tree: Tree, at: Nodes, places: list[int]) -> Tree:
    """The tree with the parents and depths of a child below each of these places of `at`."""
    if (
        isinstance(at.indices, tuple)
        and isinstance(tree.parents, tuple)
        and isinstance(tree.depths, tuple)
    ):
        parents = tuple(at.indices[place] for place in places)
        depths = tuple(1 if parent < 0 else tree.depths[parent] + 1 for parent in parents)
        return replace(
            tree,
            parents=(*tree.parents, *parents),
            depths=(*tree.depths, *depths),
            levels=max(tree.levels, *depths),
        )
    below = per_request(at.indices, tree.tokens)[:, places]
    known = per_request(tree.depths, tree.tokens)
    depth_of = torch.cat([torch.zeros_like(below[:, :1]), known], 1)
    at_tip = at.tips or at.indices == tree.newest
    return replace(
        tree,
        parents=torch.cat([per_request(tree.parents, tree.tokens), below], 1),
        depths=torch.cat([known, depth_of.gather(1, below + 1) + 1], 1),
        levels=tree.levels + 1,
        branches=not (tree.is_chain and at_tip and len(places) == 1),
        in_place=False,
    )
