"""`grow`: children of nodes, ranked or drawn from the logits of their parents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specplan.backends.ops.pick import best_columns
from specplan.backends.ops.tensors.trees import counts_of, extended, selected, summed
from specplan.backends.ops.tensors.values import Logits, Nodes, Tree, nodes_of
from specplan.ir.ops import Grow
from specplan.ir.types.value_types import TreeType
from specplan.runtime.races import drawn_alike, exponentials
from specplan.runtime.sampling import SamplingSettings, best, draw, draw_distinct, probabilities


def grow(
    op: Grow,
    tree: Tree,
    at: Tree | Nodes,
    logits: Logits,
    by: Tensor | None,
    *,
    settings: SamplingSettings,
    kind: TreeType,
    remembers: bool = False,
) -> Tree:
    """The tree with children below some of its nodes.

    Args:
        op: numbers of children, how they are chosen, and how many of them stay.
        tree: the tree that grows.
        at: the parents.
        logits: logits of the parents, and maybe of other nodes.
        by: uniforms `[B, draws]`, parent by parent; for shared draws `[B, levels]`, by the depth
            of the parent. None where nothing is drawn.
        settings: sampling settings of the requests.
        kind: type of the new tree.
        remembers: whether the tree keeps the logits for a later `mix`, see `Tree.logits`.
    """
    at = nodes_of(at)
    vectors, there = logits.ahead(at)
    if remembers:
        tree = replace(tree, logits=(*tree.logits, Logits(at.keys, vectors, there, at, False)))
    counts = counts_of(op.children, at.width)
    if not any(counts):
        return tree
    if op.how == "draw_distinct" and op.keep is not None:
        assert by is not None, "the verifier lets no draw without uniforms through"
        return _beam(tree, at, vectors, there, by, counts=counts, keep=op.keep, settings=settings)
    tokens, probs = _tokens(op, tree, at, vectors, by, counts, settings)
    parents, live = at.columns, at.live_in(tree)
    live = live if there is at.live else there & live
    above = [number for number, count in enumerate(counts) for _ in range(count)]
    single, place = set(counts) == {1}, None
    if not single or probs is not None or tree.scores is not None:
        place = torch.tensor(above, device=tokens.device)
    if not single and place is not None:
        parents, live = parents.index_select(1, place), live.index_select(1, place)
    own = None
    if tree.scores is not None and place is not None:
        own = _log_probs(vectors, place, tokens)
    drawn = None if probs is None or place is None else (place + tree.probs_count).expand_as(tokens)
    grown = extended(
        tree,
        parents,
        tokens,
        live,
        own=own,
        probs_row=drawn,
        at=at if single else None,
        probs=tree.probs if probs is None else (*tree.probs, probs),
        sure=tree.sure and logits.sure,
        **_shape_facts(op, tree, at, max(counts), kind.is_chain),
    )
    return grown if op.keep is None or op.keep >= len(above) else _best_of(grown, op.keep)


def _log_probs(vectors: Tensor, place: Tensor, tokens: Tensor) -> Tensor:
    """Log-probabilities `[B, C]` of tokens by the logits `[B, W, V]` at places `[C]`."""
    total = vectors.logsumexp(2).index_select(1, place)
    return vectors.flatten(1).gather(1, place * vectors.shape[2] + tokens) - total


def _shape_facts(op: Grow, tree: Tree, at: Nodes, most: int, chain: bool) -> dict[str, Any]:
    """Facts about the shape of the new tree, where each parent gets at most `most` children."""
    several, drawn = most > 1, op.how != "best"
    all_differ = not several or op.how in ("best", "draw_distinct")
    return {
        "chain": chain,
        "distinct": op.how != "draw" if several and drawn else tree.distinct,
        "in_order": tree.in_order and chain and at.is_last_of(tree),
        "layered": tree.layered and tree.are_tips(at) and all_differ,
        "widest": tree.widest_below(at, most),
    }


def _tokens(
    op: Grow,
    tree: Tree,
    at: Nodes,
    vectors: Tensor,
    by: Tensor | None,
    counts: tuple[int, ...],
    settings: SamplingSettings,
) -> tuple[Tensor, Tensor | None]:
    """Tokens `[B, C]` of all children, and the probabilities `[B, W, V]` they were drawn from."""
    if op.how == "best":
        ranked = best(vectors, max(counts))
        if set(counts) == {ranked.shape[2]}:
            return ranked.flatten(1), None
        return torch.cat([ranked[:, i, :count] for i, count in enumerate(counts)], 1), None
    assert by is not None, "the verifier lets no draw without uniforms through"
    probs = probabilities(vectors, settings)
    if op.how == "draw" and set(counts) == {1}:
        return draw(probs, by[:, : len(counts)]), probs
    if op.races:
        depths = at.take(tree.depths) if at.tree is tree else at.take(at.tree.depths)
        numbers = by.gather(1, depths.clamp(max=by.shape[1] - 1))
    drawn, start = [], 0
    for place, count in enumerate(counts):
        if not count:
            continue
        mine, numbers_of = probs[:, place], by[:, start : start + count]
        if op.races:
            drawn.append(drawn_alike(op.how, mine, numbers[:, place], count))
        elif op.how == "draw_distinct":
            drawn.append(draw_distinct(mine[:, None], numbers_of[:, None])[:, 0])
        else:
            drawn.append(draw(mine[:, None].expand(-1, count, -1), numbers_of))
        start += count
    return torch.cat(drawn, 1), probs


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


def _beam(
    tree: Tree,
    at: Nodes,
    vectors: Tensor,
    there: Tensor,
    by: Tensor,
    *,
    counts: tuple[int, ...],
    keep: int,
    settings: SamplingSettings,
) -> Tree:
    """Whole paths drawn without replacement, the best by perturbed log-probability.

    Stochastic beam search (Kool et al. 2019, arXiv 1903.06059, algorithm 1): the paths with the
    largest perturbed log-probabilities, where the largest of a node's children is the node's own.

    Args:
        tree: what grows.
        at: W parents.
        vectors: their logits `[B, W, V]`.
        there: which of these there are, bool `[B, W]`.
        by: uniforms; each parent takes the first of as many as it may have children.
        counts: children of each at most.
        keep: of all of them at most.
        settings: of the requests.
    """
    probs, device = probabilities(vectors, settings), vectors.device
    last = by.shape[1] - 1  # parents behind it have no children
    starts = [min(sum(counts[:place]), last) for place in range(len(counts))]
    noise = _perturbed(tree, at, probs, by[:, torch.tensor(starts, device=device)])
    width = max(counts)
    values, tokens = noise.topk(min(width, noise.shape[2]), 2)
    rank, most = torch.arange(values.shape[2], device=device), torch.tensor(counts, device=device)
    may = (rank < most[:, None]) & (there & at.live_in(tree))[:, :, None] & values.isfinite()
    values = values.where(may, -torch.inf).flatten(1)
    order = values.sort(dim=1, descending=True, stable=True).indices[:, : min(keep, sum(counts))]
    order = order.sort(dim=1).values  # parent by parent, the best first
    width, there = order.shape[1], may.flatten(1).gather(1, order)
    rank_of = torch.arange(width, device=device) + width * ~there
    order = order.gather(1, rank_of.sort(dim=1).indices)
    place, tokens = order // len(rank), tokens.flatten(1).gather(1, order)
    own = None
    if tree.scores is not None:
        logit = vectors.flatten(1).gather(1, place * vectors.shape[2] + tokens)
        own = logit - vectors.logsumexp(2).gather(1, place)
    grown = extended(
        tree, at.columns.gather(1, place), tokens, may.flatten(1).gather(1, order), own=own,
        probs_row=place + tree.probs_count,
    )  # fmt: skip
    new = Nodes(grown, grown.newest, root=False)
    drawn = Logits(new.keys, values.gather(1, order)[:, :, None], new.live)
    return replace(
        grown, probs=(*tree.probs, probs), distinct=True, chain=False, in_order=False, sure=False,
        widest=tree.widest_below(at, keep), noise=(*tree.noise, drawn),
    )  # fmt: skip


def _perturbed(tree: Tree, at: Nodes, probs: Tensor, numbers: Tensor) -> Tensor:
    """Perturbed log-probabilities of all children, float64 `[B, W, V]`; -inf of impossible ones."""
    above = torch.zeros_like(tree.tokens, dtype=torch.float64)
    drawn = tree.probs_row >= 0
    if tree.all_probs is not None:
        one = tree.probs_row.clamp(min=0) * tree.all_probs.shape[2] + tree.tokens
        above = tree.all_probs.flatten(1).gather(1, one).double().log().where(drawn, 0.0)
        above = summed(tree, above)
    noise = at.take(above)[:, :, None] + probs.double().log()
    noise = noise - exponentials(numbers, probs.shape[2]).log()
    known = torch.zeros_like(noise[:, :, 0])
    for drawn_noise in tree.noise:
        values, there = drawn_noise.of(at)
        known = torch.where(there, values[:, :, 0], known)
    shift = (-known).exp() - (-noise.amax(2)).exp()  # the best child has the noise of its parent
    bound = -((-noise).exp() + shift[:, :, None]).clamp(min=1e-300).log()
    bound = bound.where(probs > 0, -torch.inf)
    return torch.where(at.take(drawn)[:, :, None], bound, noise)
