"""What became of acceptance between two profiles: by depth with counts, and in tokens per round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specplan.cost_models.acceptance.model import Floats
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.intervals import Interval


@dataclass(frozen=True)
class DepthDrift:
    """The first child at one depth, in both profiles.

    Attributes:
        depth: from 1.
        base: hazard with its 90 % interval.
        head: hazard with its 90 % interval.
        base_counts: (accepted, trials) behind it, (0, 0) where nobody said.
        head_counts: the same of the head.
        p_value: of the likelihood ratio of one hazard for both against one for each; None without
            counts on both sides. Every trial counts as independent there.
    """

    depth: int
    base: Interval
    head: Interval
    base_counts: tuple[float, float]
    head_counts: tuple[float, float]
    p_value: float | None


@dataclass(frozen=True)
class Drift:
    """How acceptance moved.

    Attributes:
        base_tokens: tokens per round of a chain, the bonus included, with its 90 % interval.
        head_tokens: the same of the head.
        ratio: of head over base, with its 95 % interval under draws of what both leave open.
        paired: both were measured on the same prompts, and draws take the same ones of both.
        depths: one by one.
        p_value: of all depths together; None without counts.
    """

    base_tokens: Interval
    head_tokens: Interval
    ratio: Interval
    paired: bool
    depths: tuple[DepthDrift, ...]
    p_value: float | None

    def fell(self, by: float) -> bool:
        """Whether tokens per round fell by more than the part `by`, and surely fell at all."""
        return self.ratio.high < 1.0 and self.ratio.mean < 1.0 - by

    def rose(self, by: float) -> bool:
        """Whether they rose by more than that, and surely rose at all."""
        return self.ratio.low > 1.0 and self.ratio.mean > 1.0 + by


def drift(base: AcceptanceProfile, head: AcceptanceProfile, depth: int = 4) -> Drift:
    """Compare two profiles.

    Args:
        base: the older one.
        head: the newer one.
        depth: drafted tokens of the chain whose tokens per round are compared.

    Returns:
        The drift. What is uncertain of traces is which prompts were drawn (a bootstrap over
        prompts), of tables of rates how often each rate was tried (Dirichlet posterior).
    """
    chain = tuple(range(-1, depth - 1)), (0,) * depth
    levels = tuple(_depth(base, head, level) for level in range(1, depth + 1))
    one, other = (profile.tokens_per_round(*chain) for profile in (base, head))
    paired = _same_prompts(base, head)
    old, new = _draws(base, *chain), _draws(head, *chain)
    if not paired:
        new = np.random.default_rng(1).permutation(new)
    size = max(len(old), len(new))  # what they are drawn of may differ in kind
    low, high = np.quantile(np.resize(new, size) / np.resize(old, size), (0.025, 0.975))
    mean = other.mean / one.mean
    counted = [level for level in levels if level.p_value is not None]
    statistic = sum(_likelihood_ratio(i.base_counts, i.head_counts) for i in counted)
    return Drift(
        base_tokens=one,
        head_tokens=other,
        ratio=Interval(mean, min(float(low), mean), max(float(high), mean)),
        paired=paired,
        depths=levels,
        p_value=_chance(statistic, len(counted)) if counted else None,
    )


def _draws(profile: AcceptanceProfile, parents: tuple[int, ...], ranks: tuple[int, ...]) -> Floats:
    """Tokens per round under draws; the mean itself where nothing is left open."""
    draws = profile.token_draws(parents, ranks)
    if draws is None:
        return np.array([profile.tokens_per_round(parents, ranks).mean])
    return draws


def _same_prompts(base: AcceptanceProfile, head: AcceptanceProfile) -> bool:
    names = [profile.provenance.get("prompts") for profile in (base, head)]
    rows = [len(profile.evidence.traces) for profile in (base, head)]
    alike = isinstance(names[0], list) and names[0] == names[1]
    return alike and rows[0] == rows[1] > 0


def _depth(base: AcceptanceProfile, head: AcceptanceProfile, depth: int) -> DepthDrift:
    counts = base.hazard_counts(depth, 0), head.hazard_counts(depth, 0)
    known = all(trials > 0.0 for _, trials in counts)
    return DepthDrift(
        depth=depth,
        base=base.hazard_interval(depth, 0),
        head=head.hazard_interval(depth, 0),
        base_counts=counts[0],
        head_counts=counts[1],
        p_value=_chance(_likelihood_ratio(*counts), 1) if known else None,
    )


def _likelihood_ratio(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Twice the log likelihood ratio of two binomials (the G statistic), >= 0.

    Wilks 1938: with n trials of each kind it is chi-squared of one degree of freedom where both
    have the same probability.
    """
    pooled = (one[0] + other[0]) / (one[1] + other[1])
    total = 0.0
    for accepted, trials in (one, other):
        for seen, share in ((accepted, pooled), (trials - accepted, 1.0 - pooled)):
            if seen > 0.0:
                total += 2.0 * seen * float(np.log(seen / (trials * share)))
    return max(total, 0.0)


def _chance(statistic: float, freedom: int) -> float:
    """P(chi-squared of so many degrees of freedom is larger)."""
    from scipy.special import chdtrc

    return float(chdtrc(freedom, statistic))
