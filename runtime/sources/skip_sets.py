"""Source `skip_sets`: which blocks of a model its drafts can spare, searched for while it decodes.

SWIFT (Xia et al. 2024, arXiv 2410.06916, section 4.2): one set of so many attentions and so many
MLPs is tried at a time. Its score is the share of the tokens of a window of text that are its best
tokens; a set whose score is higher than the best one's takes its place. The first set is spread
evenly over the stack, the next ones are drawn at random, and one of every so many is the guess of
a Bayesian search. The search ends at a score that is good enough, after so many trials, or after so
many of them without a better set. The first and the last layer keep their blocks.

The paper scores a set on the last tokens of a text at once. Here the window fills up round by
round, with the tokens that each round emitted, so that a trial is one pass over nodes that are
verified anyway. The Bayesian guess is a tree-structured Parzen estimator (Bergstra et al. 2011) in
place of the paper's Gaussian process: of sets drawn as the good ones of the past are made, the one
that they favour most over the others, each block on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from specplan.ir.blocks import Skips, spread
from specplan.ir.plan import SourceState
from specplan.ir.sources.skip_sets import ENTRY
from specplan.runtime.sources.source import Found, Source, Tokens, Wanted

_GOOD = 0.15
"""Share of the sets tried that count as good ones."""
_DRAWN = 24
"""Sets of which a Bayesian guess is the best; as many as optuna and hyperopt draw."""
_ATTEMPTS = 64
"""Draws without a new set after which all sets count as tried."""
_SET_BYTES = 600
"""Of CPython: a set, two tuples, its score and its place."""


@dataclass(frozen=True)
class SearchSettings:
    """What is searched for, and how long.

    Attributes:
        layers: of the model.
        attention: attentions that are left out.
        mlp: MLPs that are left out.
        window: tokens by which a set is scored, at least.
        every: one of so many trials is a Bayesian guess.
        threshold: the score that is good enough.
        trials: sets that are tried at most.
        patience: trials without a better set after which the search ends.
        seed: of the draws.
    """

    layers: int
    attention: int
    mlp: int
    window: int
    every: int
    threshold: float
    trials: int
    patience: int
    seed: int


class SkipSets(Source):
    """The best set so far and the one on trial, for all requests.

    Attributes:
        settings: as declared.
        best: the best set so far.
        score: its share of matching tokens; 0 before the first trial is over.
        candidate: the set on trial; the best one once the search is over.
        tried: every set whose trial is over, with its score, in order.
    """

    learns = ("trials",)

    def __init__(self, settings: SearchSettings) -> None:
        super().__init__()
        self.settings = settings
        self.best = self.candidate = spread(settings.layers, settings.attention, settings.mlp)
        self.score = 0.0
        self.tried: dict[Skips, float] = {}
        self._searching = True
        self._stale = 0
        self._matched = self._scored = 0

    @classmethod
    def declared(cls, state: SourceState, sizes: Mapping[str, int], vocabulary: int) -> SkipSets:
        """As the entry's parameters say."""
        return cls(SearchSettings(**ENTRY.arguments(state.kind)))

    @property
    def most_bytes(self) -> float:
        """All sets that are ever tried."""
        given = self.settings
        return float(given.trials * (_SET_BYTES + 8 * (given.attention + given.mlp)))

    @property
    def is_searching(self) -> bool:
        """Whether trials still teach something."""
        return self._searching

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> Found:
        """Nothing: it knows blocks, and no tokens."""
        raise NotImplementedError("skip_sets gives blocks, and no tokens")

    def left_out(self, trial: bool) -> Skips:
        """The set on trial, or the best one."""
        return self.candidate if trial else self.best

    def learn_trial(self, tried: Skips, matched: int, scored: int) -> None:
        """Count tokens of a trial; once the window is full, judge the set and propose another."""
        if not self._searching or tried != self.candidate:
            return
        self._matched += matched
        self._scored += scored
        if self._scored >= self.settings.window:
            self._judge(self._matched / self._scored)

    def _judge(self, score: float) -> None:
        self.tried[self.candidate] = score
        self._stale += 1
        if score > self.score:
            self.best, self.score, self._stale = self.candidate, score, 0
        self._matched = self._scored = 0
        given, proposed = self.settings, None
        over = len(self.tried) >= given.trials or self._stale >= given.patience
        if not over and self.score < given.threshold:
            proposed = self._proposal()
        self._searching = proposed is not None
        self.candidate = proposed or self.best

    def _proposal(self) -> Skips | None:
        """A set that was not tried yet; None where none is found."""
        number = len(self.tried)
        rng = np.random.default_rng((self.settings.seed, number))
        inner = self.settings.layers - 2
        alike = np.zeros((2, inner))
        if number % self.settings.every == 0:
            return self._guess(rng) or self._new(rng, alike)
        return self._new(rng, alike)

    def _new(self, rng: np.random.Generator, odds: NDArray[np.float64]) -> Skips | None:
        """A new set drawn by the logarithmic odds `[2, L - 2]` of its blocks."""
        drawn = (self._draw(rng, odds) for _ in range(_ATTEMPTS))
        return next((skips for skips in drawn if skips not in self.tried), None)

    def _draw(self, rng: np.random.Generator, odds: NDArray[np.float64]) -> Skips:
        """Blocks drawn one after another without replacement: the greatest of perturbed odds."""
        order = np.argsort(-(odds + rng.gumbel(size=odds.shape)), axis=1, kind="stable") + 1
        counts = self.settings.attention, self.settings.mlp
        attentions, mlps = (row[:n].tolist() for row, n in zip(order, counts, strict=True))
        return Skips.of(attentions, mlps)

    def _guess(self, rng: np.random.Generator) -> Skips | None:
        """Of new sets made as good ones are, that which good ones favour most over the others."""
        ranked = sorted(self.tried, key=lambda skips: -self.tried[skips])
        good = ceil(_GOOD * len(ranked))
        liked, others = self._odds(ranked[:good]), self._odds(ranked[good:])
        drawn = [self._draw(rng, liked) for _ in range(_DRAWN)]
        gains = liked - others
        new = [skips for skips in drawn if skips not in self.tried]
        return max(new, key=lambda skips: float((gains * self._held(skips)).sum()), default=None)

    def _odds(self, sets: list[Skips]) -> NDArray[np.float64]:
        """How often each block is in some sets, as log odds `[2, L - 2]`, one more of each kind."""
        held = sum((self._held(skips) for skips in sets), np.ones((2, self.settings.layers - 2)))
        return np.log(held / (len(sets) + 2.0 - held))

    def _held(self, skips: Skips) -> NDArray[np.float64]:
        """1 for every inner block in a set, `[2, L - 2]`: attentions, then MLPs."""
        held = np.zeros((2, self.settings.layers - 2))
        for row, layers in enumerate((skips.attentions, skips.mlps)):
            held[row, np.array(layers, dtype=np.int64) - 1] = 1.0
        return held


SOURCE = SkipSets
