"""How many tokens a head should draft from: the most frequent ones, as many as their price says.

FR-Spec (Zhao et al. 2025, arXiv 2502.14856): the LM head of a drafter is most of its time where the
vocabulary is large, and most tokens are rare. A token outside of the vocabulary is never accepted,
others as often as by a drafter that knows all: acceptance is multiplied by the share of a text's
tokens that the most frequent ones of other texts cover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from specplan.cost_models.acceptance.priors.fit import logit_acceptance
from specplan.cost_models.acceptance.priors.tables import task_of
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.what_if import best_gain
from specplan.planner.training.described import with_untrained
from specplan.planner.training.families import FAMILIES, HeadSize

HALVES = 5
"""Sizes that are priced: all tokens, half of them, and so on."""


@dataclass(frozen=True)
class Vocabulary:
    """One size of a drafter's vocabulary.

    Attributes:
        tokens: entries.
        coverage: share of the tokens of unseen texts that it has.
        gain: planned speed over no speculation.
    """

    tokens: int
    coverage: float
    gain: float

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def coverage(
    texts: Iterable[Sequence[int]], unseen: Iterable[Sequence[int]], size: int
) -> list[float]:
    """Share of the tokens of unseen texts that the 0, 1, ... most frequent ones of texts cover.

    Args:
        texts: their tokens, of which ties are ranked by id.
        unseen: others' tokens.
        size: of the vocabulary.

    Returns:
        Size + 1 shares, the last one 1.
    """
    counts = Counter(token for text in texts for token in text)
    later = Counter(token for text in unseen for token in text)
    ranked = sorted(range(size), key=lambda token: (-counts[token], token))
    total = max(sum(later.values()), 1)
    shares = np.cumsum([0, *(later[token] for token in ranked)]) / total
    return [float(one) for one in shares]


def priced_vocabularies(
    facts: ProblemFacts,
    name: str,
    shares: Sequence[float],
    acceptance: float | None = None,
    sizes: Sequence[int] = (),
) -> list[Vocabulary]:
    """The sizes of a family's vocabulary with their planned speed, the fastest first.

    Args:
        facts: the problem; its own drafters are left out.
        name: of a family whose vocabulary may be reduced.
        shares: as of `coverage`.
        acceptance: of a draft token by a drafter that knows all tokens, given those before; None
            for the published one.
        sizes: that are priced; none for all tokens, half of them, and so on.

    Raises:
        UsageError: the target has no such sizes.
        UnpricedError: the device has no price of such a head.
    """
    family, entries = FAMILIES[name], facts.target.vocab_size
    first = next(family.sizes(facts.target))
    if acceptance is None:
        center = logit_acceptance(name, task_of(facts.problem.workload.task)).center
        acceptance = float(1.0 / (1.0 + np.exp(-center)))
    priced = []
    halves = (max(1, entries >> halves) for halves in range(HALVES))
    for tokens in dict.fromkeys(sizes or halves):
        known, _, drafter = with_untrained(facts, family, HeadSize(first.layers, tokens))
        key = acceptance_key(known.problem, known.shapes, drafter)
        profile = AcceptanceProfile.from_hazards([[acceptance * shares[tokens]]], key=key)
        gain = best_gain(replace(known, profiles={drafter: profile}), drafter)
        priced.append(Vocabulary(tokens, shares[tokens], gain))
    return sorted(priced, key=lambda one: -one.gain)
