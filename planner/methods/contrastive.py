"""A draft model drafts, and the output follows the contrast of the target with it.

Speculative contrastive decoding (Yuan et al. 2023, arXiv 2311.08981): the draft model is also the
amateur of contrastive decoding. What the target knows better than it is made more probable,
p^(1+beta) / q^beta, on tokens that are at least `alpha` times as probable as the best. The bonus
token and greedy decoding follow the contrast as well.
"""

from __future__ import annotations

from specplan.planner.templates.mixtures import MixedChains

BETA, ALPHA = 0.5, 0.1


class Contrastive(MixedChains):
    """Better text than the target's own, at the price of its speculation; changes the output."""

    summary = "a draft model drafts, and the target is contrasted with it"
    paper = "Yuan et al. 2023, arXiv 2311.08981"
    differs = "Both constants are fixed; a plan text has any."
    mixture = f"contrastive(beta={BETA}, alpha={ALPHA})"


METHOD = Contrastive()
