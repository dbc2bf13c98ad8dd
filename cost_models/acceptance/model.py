"""What every acceptance model answers, and what models that price trees node by node share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.formulas.closed_forms import expected_rounds
from specplan.cost_models.intervals import Interval
from specplan.ir.types.value_types import depths_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Outcome(Protocol):
    """What happens in rounds that draft one tree of at least one node."""

    def tokens_per_round(self, confidence: float) -> Interval:
        """Tokens that a round emits, the bonus included."""

    def token_draws(self) -> Floats | None:
        """The same under draws of what the evidence leaves open, [draws]; None if it is exact."""

    def at_least(self) -> tuple[float, ...]:
        """P(at least d drafted tokens are accepted), d = 1, 2, ..."""

    def end_shares(self) -> tuple[float, ...]:
        """P(a round's last accepted node is the root, node 0, node 1, ...)."""

    def rounds(self, tokens: int, batch: int, confidence: float) -> Interval:
        """Rounds until every request of a batch has emitted `tokens`."""


class AcceptanceModel(ABC):
    """Answers about trees; `parents` and `ranks` as in `formulas/closed_forms.py`."""

    @abstractmethod
    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was); depth >= 1, rank >= 0."""

    @abstractmethod
    def hazard_counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) where nothing was counted."""

    @abstractmethod
    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its posterior interval."""

    @abstractmethod
    def outcome(self, parents: Sequence[int], ranks: Sequence[int]) -> Outcome:
        """What happens with a tree of at least one node.

        Raises:
            UsageError: a tree with siblings on lengths.
        """

    def tokens_per_round(
        self, parents: Sequence[int], ranks: Sequence[int], confidence: float = 0.9
    ) -> Interval:
        """Tokens that a round emits, the bonus included."""
        if not len(parents):
            return Interval.exact(1.0)
        return self.outcome(parents, ranks).tokens_per_round(confidence)

    def token_draws(self, parents: Sequence[int], ranks: Sequence[int]) -> Floats | None:
        """Tokens per round under draws of what the evidence leaves open; None if it is exact.

        The same draw of different trees belongs to the same state of the world.
        """
        return self.outcome(parents, ranks).token_draws() if len(parents) else None

    def accepted_at_least(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(at least d drafted tokens are accepted), d = 1, 2, ..."""
        return self.outcome(parents, ranks).at_least() if len(parents) else ()

    def end_shares(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(a round's last accepted node is the root, node 0, node 1, ...)."""
        return self.outcome(parents, ranks).end_shares() if len(parents) else (1.0,)

    def rounds(
        self,
        parents: Sequence[int],
        ranks: Sequence[int],
        tokens: int,
        batch: int = 1,
        confidence: float = 0.9,
    ) -> Interval:
        """Rounds until every request of a batch has emitted `tokens`."""
        if not len(parents):
            return Interval.exact(float(tokens))
        return self.outcome(parents, ranks).rounds(tokens, batch, confidence)


@dataclass(frozen=True, eq=False)
class Shape:
    """A tree as arrays.

    Attributes:
        parents: [nodes], -1 for children of the root.
        ranks: [nodes].
        depths: [nodes], 1 for children of the root.
        levels: the nodes of each depth, from depth 1.
    """

    parents: Integers
    ranks: Integers
    depths: Integers
    levels: tuple[Integers, ...]

    @classmethod
    def of(cls, parents: Sequence[int], ranks: Sequence[int]) -> Shape:
        """The arrays of a tree; a tree that was asked for lately is not computed again."""
        return _shape(tuple(parents), tuple(ranks))


@lru_cache(maxsize=4096)
def _shape(parents: tuple[int, ...], ranks: tuple[int, ...]) -> Shape:
    depths = np.array(depths_of(parents), dtype=np.int64)
    return Shape(
        np.array(parents, dtype=np.int64),
        np.array(ranks, dtype=np.int64),
        depths,
        tuple(np.flatnonzero(depths == depth) for depth in range(1, int(depths.max()) + 1)),
    )


class NodeModel(AcceptanceModel):
    """A model that gives each node of a tree its probability of being accepted."""

    _latest: NodeOutcome | None = None
    """Of the tree that was last asked for: the same is asked several times."""

    @abstractmethod
    def reach(self, shape: Shape) -> Floats:
        """P(each node is accepted), [nodes]."""

    @abstractmethod
    def reach_draws(self, shape: Shape) -> Floats | None:
        """The same under draws of the posterior, [nodes, draws]; None if it is exact."""

    def outcome(self, parents: Sequence[int], ranks: Sequence[int]) -> NodeOutcome:
        """The sums over a tree's nodes."""
        shape = Shape.of(parents, ranks)
        if self._latest is None or self._latest.shape is not shape:
            self._latest = NodeOutcome(self, shape)
        return self._latest


class NodeOutcome:
    """What happens with one tree, by the probabilities of its nodes; computed when asked for."""

    def __init__(self, model: NodeModel, shape: Shape) -> None:
        self.model = model
        self.shape = shape
        self._tokens: dict[float, Interval] = {}

    @cached_property
    def reached(self) -> Floats:
        """P(each node is accepted), [nodes]."""
        return self.model.reach(self.shape)

    def tokens_per_round(self, confidence: float) -> Interval:
        """F(T) = 1 + sum over nodes of P(accepted) (Sequoia, arXiv 2402.12374, section 3.1)."""
        if confidence not in self._tokens:
            mean, draws = 1.0 + float(self.reached.sum()), self.token_draws()
            interval = Interval.exact(mean) if draws is None else around(mean, draws, confidence)
            self._tokens[confidence] = interval
        return self._tokens[confidence]

    def token_draws(self) -> Floats | None:
        """F(T) under draws of the posterior, [draws]."""
        reached = self.model.reach_draws(self.shape)
        return None if reached is None else 1.0 + reached.sum(axis=0)

    def at_least(self) -> tuple[float, ...]:
        """P(at least d drafted tokens are accepted): siblings exclude each other, so levels sum."""
        return tuple(np.bincount(self.shape.depths, weights=self.reached)[1:].tolist())

    def end_shares(self) -> tuple[float, ...]:
        """A round ends at a node that was reached when none of its children was."""
        reached, parents = self.reached, self.shape.parents
        left = np.bincount(parents + 1, weights=reached, minlength=len(reached) + 1)
        return tuple((np.concatenate([[1.0], reached]) - left).tolist())

    def rounds(self, tokens: int, batch: int, confidence: float) -> Interval:
        """Every request is taken to be alike (whatever `batch`), and only the mean is known."""
        mean = expected_rounds(tokens, self.at_least())
        value = self.tokens_per_round(confidence)
        return Interval(mean, mean * value.mean / value.high, mean * value.mean / value.low)


def around(mean: float, draws: Floats, confidence: float) -> Interval:
    """The equal-tailed interval of draws, widened to hold the mean."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return Interval(mean, min(mean, float(low)), max(mean, float(high)))
