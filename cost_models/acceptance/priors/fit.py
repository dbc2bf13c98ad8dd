"""Priors of acceptance: what published figures say of a drafter that nobody has measured.

The acceptance probability of a new drafter, on the logit scale and as if all positions were alike,
is Student-t around the mean of its kind and task:

- a source counts once, however many figures it has;
- tasks differ by the same amount for all kinds, shrunk towards no difference;
- the variance between figures of a kind is shrunk towards that of all kinds, and the deviation is
  that of a new figure (Gelman et al., Bayesian Data Analysis, 3rd ed., sections 2.6 and 3.2).

How acceptance changes along a chain is as open as it is for one mean length (`fits/mean_length`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log, sqrt

import numpy as np

from specplan.cost_models.acceptance.evidence.mixture import BetaMixture
from specplan.cost_models.acceptance.fits.mean_length import MEMBERS, Spread, mixture_members
from specplan.cost_models.acceptance.priors.tables import (
    KINDS,
    TASKS,
    PublishedLength,
    Task,
    kind_table,
)
from specplan.cost_models.acceptance.profile import ASSUMPTION, AcceptanceKey, AcceptanceProfile
from specplan.cost_models.formulas.closed_forms import expected_tokens
from specplan.cost_models.intervals import Interval

TASK_SHRINKAGE = 2.0
"""Sources at which half of an observed difference between tasks is believed."""
VARIANCE_SHRINKAGE = 4.0
"""Sources of the variance of all kinds that a kind's own is averaged with."""
CHECKED_SOURCES = 3
"""Sources that set nothing which a kind needs to count as checked."""


@dataclass(frozen=True)
class LogitAcceptance:
    """Student-t of the logit of a new drafter's acceptance probability.

    Attributes:
        center: its median.
        scale: of a new figure.
        freedom: degrees of freedom.
        draft_tokens: chain length of the middle figure, at which the probability holds.
    """

    center: float
    scale: float
    freedom: float
    draft_tokens: int


def prior_profile(kind: str, task: Task, key: AcceptanceKey) -> AcceptanceProfile:
    """The prior of a kind and task as a profile, marked as an assumption.

    Args:
        kind: of the drafter.
        task: of the prompts.
        key: what the profile is about.

    Returns:
        A mixture of equally likely members, for chains; no second choices are known.
    """
    table, logit = kind_table(kind), logit_acceptance(kind, task)
    sources = sorted({one.source for one in table.setting})
    text = (
        f"prior for {table.words}, task {task}: {_length_text(kind, task)} from "
        f"{_count(len(table.setting), 'published figure')} of {_count(len(sources), 'source')}, "
        f"{checked_words(kind)}"
    )
    facts = {
        "kind": ASSUMPTION,
        "origin": "prior",
        "prior": {"kind": kind, "task": task, "checked": checked_words(kind), "sources": sources},
        "assumed": text,
        "words": f"is assumed: {text}",
        "draft_tokens": logit.draft_tokens,
    }
    return AcceptanceProfile(key, prior_mixture(kind, task), facts)


@cache
def prior_mixture(kind: str, task: Task) -> BetaMixture:
    """Beta mixtures, equally likely, one for each quantile of the acceptance probability."""
    from scipy.stats import t as student

    logit = logit_acceptance(kind, task)
    shares = (np.arange(MEMBERS) + 0.5) / MEMBERS
    logits = logit.center + logit.scale * student.ppf(shares, logit.freedom)
    alphas = 1.0 / (1.0 + np.exp(-logits))
    lengths = np.array([expected_tokens(float(a), logit.draft_tokens) for a in alphas])
    least, most = kind_table(kind).concentration
    members = mixture_members(lengths, logit.draft_tokens, Spread(least, most))
    return BetaMixture(members, (), None)


@cache
def logit_acceptance(kind: str, task: Task) -> LogitAcceptance:
    """The distribution of the logit of acceptance of a new drafter of a kind, on a task."""
    offsets, pooled = _task_offsets(), _pooled_variance()
    figures = kind_table(kind).setting
    means, weights = _by_source(figures, offsets)
    center = float(np.mean(means))
    residuals = np.array([_logit(one.alpha) - offsets[one.task] - center for one in figures])
    own = float(np.average(residuals**2, weights=weights))
    count = len(means)
    freedom = count - 1 + VARIANCE_SHRINKAGE
    variance = (own * count + pooled * VARIANCE_SHRINKAGE) / freedom
    middle = int(np.median([one.draft_tokens for one in figures]))
    scale = sqrt(variance * (1.0 + 1.0 / count))
    return LogitAcceptance(center + offsets[task], scale, freedom, middle)


def _by_source(
    figures: Sequence[PublishedLength], offsets: dict[Task, float]
) -> tuple[list[float], list[float]]:
    """Means of the sources, and weights of the figures that sum to 1 for each source."""
    grouped: dict[str, list[float]] = {}
    for one in figures:
        grouped.setdefault(one.source, []).append(_logit(one.alpha) - offsets[one.task])
    weights = [1.0 / len(grouped[one.source]) for one in figures]
    return [float(np.mean(values)) for values in grouped.values()], weights


@cache
def _task_offsets() -> dict[Task, float]:
    """Logits by which a task is above the mean of tasks, from sources that have several."""
    above: dict[Task, list[float]] = {task: [] for task in TASKS}
    for kind in KINDS:
        groups: dict[str, dict[Task, list[float]]] = {}
        for one in kind_table(kind).setting:
            by_task = groups.setdefault(one.source, {})
            by_task.setdefault(one.task, []).append(_logit(one.alpha))
        for by_task in groups.values():
            means = {task: float(np.mean(logits)) for task, logits in by_task.items()}
            if len(means) > 1:
                level = float(np.mean(list(means.values())))
                for task, mean in means.items():
                    above[task].append(mean - level)
    return {
        task: float(np.sum(values)) / (len(values) + TASK_SHRINKAGE)
        for task, values in above.items()
    }


@cache
def _pooled_variance() -> float:
    """Variance of logits around the mean of their kind, over all kinds; sources count alike."""
    offsets = _task_offsets()
    total, freedom = 0.0, 0
    for kind in KINDS:
        figures = kind_table(kind).setting
        means, weights = _by_source(figures, offsets)
        center = float(np.mean(means))
        squares = [(_logit(one.alpha) - offsets[one.task] - center) ** 2 for one in figures]
        total += float(np.dot(squares, weights))
        freedom += len(means) - 1
    return total / max(freedom, 1)


@dataclass(frozen=True)
class CheckedLength:
    """A published figure and what the prior of its kind and task says of it.

    Attributes:
        figure: it sets no prior.
        interval: of the mean tokens per step at its draft length.
    """

    figure: PublishedLength
    interval: Interval

    @property
    def inside(self) -> bool:
        """Whether the interval holds the figure."""
        return self.interval.low <= self.figure.length <= self.interval.high


def checked_lengths(
    figures: Iterable[PublishedLength] | None = None,
) -> tuple[CheckedLength, ...]:
    """The figures with the 90 % intervals of the priors.

    Args:
        figures: those that set no prior; None for all such figures of the tables.

    Raises:
        ValueError: a figure's source sets priors.
    """
    if figures is None:
        figures = [one for kind in KINDS for one in kind_table(kind).checking]
    return tuple(_checked(one) for one in figures)


def _checked(one: PublishedLength) -> CheckedLength:
    if one.sets:
        raise ValueError(f"{one.source} sets priors")
    chain = tuple(range(-1, one.draft_tokens - 1)), (0,) * one.draft_tokens
    model = prior_mixture(one.kind, one.task).model
    return CheckedLength(one, model.tokens_per_round(*chain))


@cache
def checked_words(kind: str) -> str:
    """How far the priors of a kind were checked: figures of other sources in 90 % intervals."""
    checked = checked_lengths(kind_table(kind).checking)
    sources = {one.figure.source for one in checked}
    if len(sources) < CHECKED_SOURCES:
        return "unchecked"
    inside = sum(one.inside for one in checked)
    return (
        f"checked: 90 % intervals held {inside} of {len(checked)} figures of {len(sources)} "
        "other sources"
    )


def _length_text(kind: str, task: Task) -> str:
    """Tokens per step of a chain, with the 90 % interval."""
    draft_tokens = logit_acceptance(kind, task).draft_tokens
    chain = tuple(range(-1, draft_tokens - 1)), (0,) * draft_tokens
    tokens = prior_mixture(kind, task).model.tokens_per_round(*chain)
    return f"{tokens.words('.1f')} tokens per step at {draft_tokens} draft tokens,"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _logit(probability: float) -> float:
    bounded = min(max(probability, exp(-6)), 1.0 - exp(-6))
    return log(bounded / (1.0 - bounded))
