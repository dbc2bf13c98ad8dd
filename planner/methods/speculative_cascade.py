"""A draft model drafts and answers alone where it is as confident as the target.

Speculative cascades (Narasimhan et al. 2024, arXiv 2405.19261): token by token the output follows
the draft model's probabilities q, or the target's p where max q < max p - alpha TV(p, q). Where the
draft model answers, its drafts are always accepted. The rule compares the probabilities of the
models themselves, at temperature 1, so that it defers at temperature 0 as well.
"""

from __future__ import annotations

from specplan.planner.templates.mixtures import MixedChains

ALPHA = 0.1


class SpeculativeCascade(MixedChains):
    """Longer accepted runs than of lossless drafts by the same model; changes the output."""

    summary = "a draft model drafts, and the target answers where that is less confident"
    paper = "Narasimhan et al. 2024, arXiv 2405.19261"
    differs = "Of the paper's deferral rules it has OPT, with one cost of deferring."
    mixture = f"cascade(alpha={ALPHA})"


METHOD = SpeculativeCascade()
