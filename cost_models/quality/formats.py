"""What a target loses on held-out text where it runs in another number format."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any


@dataclass(frozen=True)
class FormatLoss:
    """Losses of a target in one format against the same target in another, text by text.

    Attributes:
        losses: nats per token by which each text becomes less likely; below 0 where it becomes
            more likely.
        against: the formats that it is compared with.
        risk: probability that the bound is wrong.
    """

    losses: tuple[float, ...]
    against: str
    risk: float

    @property
    def mean(self) -> float:
        """Nats per token."""
        return fmean(self.losses)

    @property
    def bound(self) -> float:
        """The mean loss of texts like these is at most this: Student's upper bound."""
        from scipy.stats import t

        count = len(self.losses)
        quantile = float(t.ppf(1.0 - self.risk, count - 1))
        return self.mean + quantile * stdev(self.losses) / sqrt(count)

    def keeps(self, at_most: float, tested: int) -> bool:
        """Whether the bound keeps a limit, where so many formats are tested beside it."""
        return FormatLoss(self.losses, self.against, self.risk / tested).bound <= at_most

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "mean": self.mean,
            "bound": self.bound,
            "against": self.against,
            "risk": self.risk,
            "samples": len(self.losses),
        }
