"""The law of short texts by enumeration, and whether a plan's output follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from specplan.ir.plan import Plan
from specplan.measure.acceptance.teacher import text_logits
from specplan.runtime.grammar import Grammar
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, probabilities
from tests.backends.pairs import run

VOCABULARY = 5
LENGTH = 3
PROMPT = (1, 4, 2, 0, 3, 1)
SETTINGS = {"temperature": 0.8, "top_k": 0, "top_p": 0.95}


def law_of_texts(
    target: CausalModel,
    others: Sequence[CausalModel | Callable[[list[int]], Tensor]] = (),
    law: Callable[..., Tensor] | None = None,
    left: Callable[[tuple[int, ...]], np.ndarray] | None = None,
) -> np.ndarray:
    """Probability of every text of `LENGTH` tokens, by enumeration.

    Args:
        target: whose law it is.
        others: models, or functions of a text, whose logits a law combines with the target's.
        law: of the logits `[models, V]`, those of the mixture.
        left: which tokens may follow a text, bool `[V]`; all where it is left out.
    """
    joint = np.ones((VOCABULARY,) * LENGTH)
    settings = SamplingSettings.of([Request(prompt_tokens=PROMPT, **SETTINGS)])
    for length in range(LENGTH):
        for before in product(range(VOCABULARY), repeat=length):
            if not joint[before].any():
                continue
            text = [*PROMPT, *before, 0]
            logits = text_logits(target, text, len(text) - 1)
            if law is not None:
                more = [
                    text_logits(one, text, len(text) - 1)
                    if isinstance(one, CausalModel)
                    else one(text[:-1])
                    for one in others
                ]
                logits = law(torch.stack([logits, *more]), None)
            if left is not None:
                logits = logits.masked_fill(~torch.from_numpy(left(before)), -torch.inf)
            joint[before] *= (
                probabilities(logits[None], settings)[0, 0]
                .numpy()
                .reshape(VOCABULARY, *([1] * (LENGTH - length - 1)))
            )
    assert joint.sum() == pytest.approx(1.0)
    return joint.ravel()


def p_value(
    plan: Plan,
    models: dict[str, CausalModel],
    expected: np.ndarray,
    seeds: int = 6000,
    grammar: Grammar | None = None,
) -> float:
    """Chance of counts as far from the expected law, over so many seeds, whole batches of 500."""
    counts = np.zeros(len(expected))
    for start in range(0, seeds, 500):
        requests = [
            Request(
                prompt_tokens=PROMPT, max_new_tokens=LENGTH, seed=seed, grammar=grammar, **SETTINGS
            )
            for seed in range(start, start + 500)
        ]
        for tokens in run(plan, models, requests):
            counts[np.ravel_multi_index(tokens, (VOCABULARY,) * LENGTH)] += 1
    possible = expected > 0
    assert counts[~possible].sum() == 0
    large = possible & (expected * counts.sum() >= 5)
    seen = np.append(counts[large], counts[possible & ~large].sum())
    wanted = np.append(expected[large], expected[possible & ~large].sum()) * counts.sum()
    likely = wanted > 0
    return float(chisquare(seen[likely], wanted[likely]).pvalue)
