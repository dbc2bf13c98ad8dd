"""What every acceptance model answers, and what models that price trees node by node share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.formulas.closed_forms import depths_of, expected_rounds
from specplan.cost_models.intervals import Interval

T = TypeVar("T")
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class AcceptanceModel(Protocol):
    """Answers about trees; `parents` and `ranks` as in `formulas/closed_forms.py`."""

    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was); depth >= 1, rank >= 0."""
        ...

    def counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) where nothing was counted."""
        ...

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its interval."""
        ...

    def tokens_per_round(
        self, parents: Sequence[int], ranks: Sequence[int], confidence: float = 0.9
    ) -> Interval:
        """Tokens that a round emits, the bonus included."""
        ...

    def token_draws(self, parents: Sequence[int], ranks: Sequence[int]) -> Floats | None:
        """Tokens that a round emits under draws of the posterior; None where the model is exact.

        The same draw of different trees belongs to the same state of the world.
        """
        ...

    def accepted_at_least(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(at least d drafted tokens are accepted), d = 1, 2, ..."""
        ...

    def end_shares(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(a round's last accepted node is the root, node 0, node 1, ...)."""
        ...

    def rounds(
        self,
        parents: Sequence[int],
        ranks: Sequence[int],
        tokens: int,
        batch: int = 1,
        confidence: float = 0.9,
    ) -> Interval:
        """Rounds until every request of a batch has emitted `tokens`."""
        ...


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


class NodeModel(ABC):
    """A model that gives each node of a tree its probability of being accepted."""

    _latest: tuple[Shape, dict[Any, Any]] | None = None
    """The tree that was last asked for, and the answers: the same is asked several times."""

    @abstractmethod
    def reach(self, shape: Shape) -> Floats:
        """P(each node is accepted), [nodes]."""

    @abstractmethod
    def reach_draws(self, shape: Shape) -> Floats | None:
        """The same under draws of the posterior, [nodes, draws]; None if it is exact."""

    def tokens_per_round(
        self, parents: Sequence[int], ranks: Sequence[int], confidence: float = 0.9
    ) -> Interval:
        """F(T) = 1 + sum over nodes of P(accepted) (Sequoia, arXiv 2402.12374, section 3.1)."""
        if not len(parents):
            return Interval.exact(1.0)
        shape = Shape.of(parents, ranks)

        def found() -> Interval:
            mean = 1.0 + float(self._reach_once(shape).sum())
            draws = self.token_draws(parents, ranks)
            return Interval.exact(mean) if draws is None else around(mean, draws, confidence)

        return self._once(shape, ("tokens", confidence), found)

    def token_draws(self, parents: Sequence[int], ranks: Sequence[int]) -> Floats | None:
        """F(T) under draws of the posterior, [draws]."""
        if not len(parents):
            return None
        reached = self.reach_draws(Shape.of(parents, ranks))
        return None if reached is None else 1.0 + reached.sum(axis=0)

    def accepted_at_least(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(at least d drafted tokens are accepted): siblings exclude each other, so levels sum."""
        if not len(parents):
            return ()
        shape = Shape.of(parents, ranks)
        levels = np.bincount(shape.depths, weights=self._reach_once(shape))[1:]
        return tuple(levels.tolist())

    def end_shares(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """A round ends at a node that was reached when none of its children was."""
        if not len(parents):
            return (1.0,)
        shape = Shape.of(parents, ranks)
        reached = self._reach_once(shape)
        left = np.bincount(shape.parents + 1, weights=reached, minlength=len(reached) + 1)
        return tuple((np.concatenate([[1.0], reached]) - left).tolist())

    def rounds(
        self,
        parents: Sequence[int],
        ranks: Sequence[int],
        tokens: int,
        batch: int = 1,
        confidence: float = 0.9,
    ) -> Interval:
        """Every request is taken to be alike (whatever `batch`), and only the mean is known."""
        if not len(parents):
            return Interval.exact(float(tokens))

        def found() -> Interval:
            mean = expected_rounds(tokens, self.accepted_at_least(parents, ranks))
            value = self.tokens_per_round(parents, ranks, confidence)
            return Interval(mean, mean * value.mean / value.high, mean * value.mean / value.low)

        return self._once(Shape.of(parents, ranks), ("rounds", tokens, confidence), found)

    def _reach_once(self, shape: Shape) -> Floats:
        return self._once(shape, "reach", lambda: self.reach(shape))

    def _once(self, shape: Shape, question: Any, answer: Callable[[], T]) -> T:
        if self._latest is None or self._latest[0] is not shape:
            self._latest = shape, {}
        known = self._latest[1]
        if question not in known:
            known[question] = answer()
        found: T = known[question]
        return found


def around(mean: float, draws: Floats, confidence: float) -> Interval:
    """The equal-tailed interval of draws, widened to hold the mean."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return Interval(mean, min(mean, float(low)), max(mean, float(high)))
