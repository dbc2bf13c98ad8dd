"""Curves of acceptance, and the rule that ends a training: on laws, and on recorded trainings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specplan.planner.training.curves import Curve, Evaluation
from specplan.planner.training.stopping import Speed, StopRule, verdict

ROUNDS = 4000


def evaluations_of(rates: list[list[float]], steps: list[int], seed: int) -> list[Evaluation]:
    """Counts drawn from rates by position, as many rounds at the first as `ROUNDS`."""
    rng, made = np.random.default_rng(seed), []
    for at, row in zip(steps, rates, strict=True):
        reached, accepted = [ROUNDS], list[tuple[int, ...]]()
        for rate in row:
            accepted.append((int(rng.binomial(reached[-1], rate)), 0))
            reached.append(accepted[-1][0])
        made.append(Evaluation(at, tuple(reached[:-1]), tuple(accepted)))
    return made


def law(steps: int, limit: float, rise: float, exponent: float) -> float:
    return limit - rise * (steps / 100.0) ** -exponent


def chain_speed(draft_seconds: float, most: int) -> Speed:
    """Of the best chain of at most `most` tokens that cost so many passes of the target each."""

    def speed(hazards: Sequence[Sequence[float]]) -> float:
        lengths = 1.0 + np.cumsum(np.cumprod([row[0] for row in hazards][:most]))
        seconds = 1.0 + draft_seconds * np.arange(1, len(lengths) + 1)
        return float(max(1.0, (lengths / seconds).max()))

    return speed


def test_a_curve_predicts_what_its_law_says_within_its_interval() -> None:
    """Of 200 laws, each seen to a tenth of its steps, about 90 % hold their end inside."""
    rng, inside, errors = np.random.default_rng(1), 0, []
    for _ in range(200):
        limit, exponent = rng.uniform(0.5, 0.9), rng.uniform(0.3, 1.5)
        rise = rng.uniform(0.1, 0.4)
        steps = [100, 200, 300, 400, 500]
        counts = [int(rng.binomial(ROUNDS, law(n, limit, rise, exponent))) for n in steps]
        curve = Curve(tuple(steps), tuple(c / ROUNDS for c in counts), (ROUNDS,) * 5)
        end, interval = law(5000, limit, rise, exponent), curve.interval(5000)
        inside += interval.low <= end <= interval.high
        errors.append(abs(interval.mean - end))
    assert 0.8 < inside / 200 <= 1.0 and np.mean(errors) < 0.06


def test_training_ends_where_the_rest_gains_less_than_it_is_worth() -> None:
    """Laws of three speeds of learning: at most 1 % of the speed is lost, by its own law."""
    speed, budget = chain_speed(0.1, 5), 4000
    saved = []
    for exponent in (0.5, 1.0, 1.5):
        rule = StopRule(budget, budget // 20)
        steps = list(range(rule.interval, budget + 1, rule.interval))
        rates = [[law(n, top, 0.3, exponent) for top in (0.8, 0.7, 0.65, 0.6, 0.6)] for n in steps]
        points = evaluations_of(rates, steps, 7)
        end = next(
            (i for i in range(1, len(points)) if verdict(points[: i + 1], rule, speed).stop),
            len(points) - 1,
        )
        final, stopped = (speed([[rate] for rate in rates[i]]) for i in (-1, end))
        assert stopped > 0.99 * final, (exponent, steps[end])
        saved.append(1.0 - steps[end] / budget)
    assert max(saved) > 0.3 and saved == sorted(saved), saved


def test_a_training_that_gets_worse_ends_soon() -> None:
    """DeepSpec issue 84: EAGLE-3 on Qwen3-4B emits 3.28 tokens a step after 0.8 epochs, 3.34 after
    2.3 and 4.6, 3.24 after 7.6 and 3.18 after 10, while its training loss falls from 2.69 to 1.50.

    Read as one rate at every position of chains of seven, between these points linear.
    """
    epochs, lengths = [0.8, 2.3, 4.6, 7.6, 10.0], [3.28, 3.34, 3.34, 3.24, 3.18]
    grid = np.linspace(1e-3, 0.999, 4000)
    means = 1.0 + sum(grid**k for k in range(1, 8))
    steps = [round(100 * epoch) for epoch in np.arange(0.8, 10.01, 0.4)]
    rates = [
        [float(np.interp(np.interp(step / 100, epochs, lengths), means, grid))] * 7
        for step in steps
    ]
    rule, speed = StopRule(1000, 40), chain_speed(0.05, 7)
    points = evaluations_of(rates, steps, 3)
    end = next(i for i in range(2, len(points)) if verdict(points[: i + 1], rule, speed).stop)
    best = max(speed([[rate] for rate in row]) for row in rates)
    assert steps[end] <= 460 and speed([[rate] for rate in rates[end]]) > 0.99 * best
