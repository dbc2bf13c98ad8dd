"""Whole paths drawn without replacement.

Stochastic beam search (Kool et al. 2019, arXiv 1903.06059, algorithm 1): the paths with the largest
perturbed log-probabilities, where those of children have that of their parent as their maximum.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.reshaping import extended, summed
from specplan.backends.ops.values import Nodes, Rows, Tree
from specplan.runtime.races import exponentials
from specplan.runtime.sampling import SamplingSettings, probabilities


def beam(
    tree: Tree,
    at: Nodes,
    rows: Tensor,
    there: Tensor,
    by: Tensor,
    *,
    counts: tuple[int, ...],
    keep: int,
    settings: SamplingSettings,
) -> Tree:
    """The tree with the best children by perturbed log-probability, parent by parent.

    Args:
        tree: what grows.
        at: W parents.
        rows: their logits `[B, W, V]`.
        there: which of these there are, bool `[B, W]`.
        by: uniforms; each parent takes the first of as many as it may have children.
        counts: children of each at most.
        keep: of all of them at most.
        settings: of the requests.
    """
    laws, device = probabilities(rows, settings), rows.device
    last = by.shape[1] - 1  # parents behind it have no children
    starts = [min(sum(counts[:place]), last) for place in range(len(counts))]
    noise = _perturbed(tree, at, laws, by[:, torch.tensor(starts, device=device)])
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
        said = rows.flatten(1).gather(1, place * rows.shape[2] + tokens)
        own = said - rows.logsumexp(2).gather(1, place)
    grown = extended(
        tree, at.columns.gather(1, place), tokens, may.flatten(1).gather(1, order), own=own,
        law_row=place + tree.laws_held,
    )  # fmt: skip
    new = Nodes(grown, grown.newest, root=False)
    drawn = Rows(new.keys, values.gather(1, order)[:, :, None], new.live)
    return replace(
        grown, laws=(*tree.laws, laws), distinct=True, chain=False, in_order=False, sure=False,
        widest=tree.widest_below(at, keep), noise=(*tree.noise, drawn),
    )  # fmt: skip


def _perturbed(tree: Tree, at: Nodes, laws: Tensor, numbers: Tensor) -> Tensor:
    """Perturbed log-probabilities of all children, float64 `[B, W, V]`; -inf of impossible ones."""
    above = torch.zeros_like(tree.tokens, dtype=torch.float64)
    drawn = tree.law_row >= 0
    if tree.all_laws is not None:
        one = tree.law_row.clamp(min=0) * tree.all_laws.shape[2] + tree.tokens
        above = tree.all_laws.flatten(1).gather(1, one).double().log().where(drawn, 0.0)
        above = summed(tree, above)
    noise = at.take(above)[:, :, None] + laws.double().log()
    noise = noise - exponentials(numbers, laws.shape[2]).log()
    known = torch.zeros_like(noise[:, :, 0])
    for rows in tree.noise:
        values, there = rows.of(at)
        known = torch.where(there, values[:, :, 0], known)
    shift = (-known).exp() - (-noise.amax(2)).exp()  # the best child has the noise of its parent
    bound = -((-noise).exp() + shift[:, :, None]).clamp(min=1e-300).log()
    bound = bound.where(laws > 0, -torch.inf)
    return torch.where(at.take(drawn)[:, :, None], bound, noise)
