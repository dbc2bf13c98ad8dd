"""`specplan bench`: a plan against plain decoding and against stock `transformers`.

All contenders continue the same prompts, group by group, in an order that rotates, so that
disturbances of the machine fall on all of them. Ratios are taken within a group, and the median
over groups is reported. A source that requests share has served some before (`served_before`), as
in a service and as where its acceptance is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from specplan.cost_models.forecast import Forecast
from specplan.cost_models.intervals import Interval
from specplan.ir.errors import NothingToCompareError, UsageError
from specplan.ir.plan import Plan
from specplan.measure.bench.contenders import Contender, executable_timer, plan_timer, stock_timer
from specplan.measure.bench.stock import stock_runners
from specplan.measure.machine import hardware_name, versions
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import (
    BENCH,
    PROFILE,
    TokenPrompt,
    Workbench,
    chosen_prompts,
    groups_of,
)
from specplan.planner import PLAIN
from specplan.runtime.executable import Executable

STOCK = "transformers.generate"
MOST_SERVED = 20
"""Most prompts that shared sources have served before."""


@dataclass(frozen=True)
class Line:
    """One row of the comparison.

    Attributes:
        name: the contender.
        tokens_per_second: all tokens over all seconds, prompts included.
        low: lower quartile over groups, tokens per second.
        high: upper quartile over groups, tokens per second.
        tokens_per_round: emitted per request and round, bonus included; None if unknown.
        against_baseline: median over groups of speed over that of our autoregressive decoding.
        against_stock: the same over `transformers.generate`; None when it did not run.
        predicted: predicted tokens per second of a run of this many prompts, or None.
        error: predicted over measured, minus 1; None without a prediction.
        differing: prompts whose output is not that of autoregressive decoding.
        ttft: seconds until the first token, median over groups; None if unknown.
        tpot: seconds per further token of a request, median over groups; None if unknown.
        request_seconds: prompts and outputs of a group, median over groups; None if unknown.
    """

    name: str
    tokens_per_second: float
    low: float
    high: float
    tokens_per_round: float | None
    against_baseline: float
    against_stock: float | None
    predicted: Interval | None
    error: float | None
    differing: int
    ttft: float | None = None
    tpot: float | None = None
    request_seconds: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The result of a bench run.

    Attributes:
        lines: one per contender.
        chosen: name of the plan that the comparison is about.
        batch: requests per group.
        prompts: number of prompts.
        output_tokens: emitted per prompt.
        repeats: runs of each group.
        hardware: the machine.
        versions: of the software.
        outputs: emitted tokens per prompt, by contender.
    """

    lines: tuple[Line, ...]
    chosen: str
    batch: int
    prompts: int
    output_tokens: int
    repeats: int
    hardware: str
    versions: Mapping[str, str]
    outputs: Mapping[str, Sequence[tuple[int, ...]]]

    def line(self, name: str) -> Line:
        """The row of a contender.

        Raises:
            NothingToCompareError: it did not run.
        """
        for line in self.lines:
            if line.name == name:
                return line
        raise NothingToCompareError(f"{name} did not run", where="bench")


def compare(
    bench: Workbench,
    plans: Mapping[str, tuple[Plan, Forecast | None]],
    *,
    chosen: str = PLAIN,
    compiled: Executable | None = None,
    batch: int = 1,
    limit: int | None = None,
    repeats: int = 3,
    stock: bool = True,
    exit_layer: int | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Run all contenders on the bench split of the prompts.

    Args:
        bench: the problem's models and prompts.
        plans: (plan, forecast of its speed) by name; `autoregressive` among them.
        chosen: which of the plans the comparison is about.
        compiled: runs the chosen plan by compiled rounds; forecasts are of these if the
            problem's backend compiles rounds, else of the others.
        batch: requests decoded together.
        limit: most prompts to use.
        repeats: runs of each group by each contender.
        stock: also run `transformers.generate`.
        exit_layer: of the target, after which one of its assisted modes drafts; None without it.
        progress: called for every run.

    Raises:
        NothingToCompareError: there is no autoregressive plan, or fewer prompts than `batch`.
    """
    if PLAIN not in plans:
        raise NothingToCompareError("no autoregressive plan to compare with", where="bench")
    groups = groups_of(bench.prompts(BENCH)[:limit], batch)
    served = served_before(bench)
    of_compiled = bench.runs_by != bench.problem.backend
    contenders = [
        Contender(name, plan_timer(bench, plan, served), None if of_compiled else forecast)
        for name, (plan, forecast) in plans.items()
    ]
    if compiled is not None:
        forecast = plans[chosen][1] if of_compiled else None
        timer = executable_timer(bench, compiled, served)
        contenders.append(Contender(f"{chosen}, compiled", timer, forecast))
    if stock:
        runners = stock_runners(bench, batch, exit_layer)
        contenders += [Contender(name, stock_timer(run)) for name, run in runners.items()]
    _run_all(contenders, groups, repeats, progress)
    return Comparison(
        lines=tuple(_lines(contenders, batch)),
        chosen=chosen,
        batch=batch,
        prompts=len(groups) * batch,
        output_tokens=bench.output_tokens,
        repeats=repeats,
        hardware=hardware_name(bench.models["target"].device),
        versions=versions(),
        outputs={contender.name: contender.outputs for contender in contenders},
    )


def served_before(bench: Workbench) -> Sequence[TokenPrompt]:
    """What sources that requests share have served before a comparison.

    Half of the prompts that acceptance is measured on: these are taken in order, so that a source
    knows half of the others when it drafts for the mean one.
    """
    try:
        prompts = chosen_prompts(bench.problem, PROFILE)
    except UsageError:  # all of them belong to the bench
        return []
    return [bench.token_prompt(one) for one in prompts[: len(prompts) // 2][:MOST_SERVED]]


def _run_all(
    contenders: Sequence[Contender],
    groups: Sequence[Sequence[TokenPrompt]],
    repeats: int,
    progress: Progress,
) -> None:
    """Run every contender on all groups, `repeats` times, in an order that rotates."""
    for contender in contenders:
        contender.run(groups[0])  # not counted: the first run allocates and warms caches
    total = len(groups) * repeats
    for turn in range(total):
        progress("comparing", turn, total)
        group, first = turn % len(groups), turn % len(contenders)
        for contender in [*contenders[first:], *contenders[:first]]:
            contender.take(group, contender.run(groups[group]))
    progress("comparing", total, total)


def _lines(contenders: Sequence[Contender], batch: int) -> Iterator[Line]:
    named = {contender.name: contender for contender in contenders}
    baseline, stock = named[PLAIN], named.get(STOCK)
    for contender in contenders:
        speeds = [
            tokens / seconds
            for tokens, seconds in zip(contender.tokens, contender.group_seconds, strict=True)
        ]
        low, high = quartiles(speeds)
        first = contender.first_seconds
        predicted = None
        if contender.forecast is not None:
            predicted = contender.forecast.tokens_per_second(len(contender.outputs))
        yield Line(
            name=contender.name,
            tokens_per_second=contender.tokens_per_second,
            low=low,
            high=high,
            tokens_per_round=contender.tokens_per_round,
            against_baseline=_ratio(contender, baseline),
            against_stock=None if stock is None else _ratio(contender, stock),
            predicted=predicted,
            error=None if predicted is None else predicted.mean / contender.tokens_per_second - 1.0,
            differing=sum(
                mine != theirs
                for mine, theirs in zip(contender.outputs, baseline.outputs, strict=True)
            ),
            ttft=median(first) if first else None,
            tpot=median(_seconds_per_token(contender, batch)) if first else None,
            request_seconds=median(contender.group_seconds),
        )


def _seconds_per_token(contender: Contender, batch: int) -> Iterator[float]:
    """Per group, seconds between two tokens of a request after the first."""
    times = zip(contender.group_seconds, contender.first_seconds, contender.tokens, strict=True)
    for seconds, first, tokens in times:
        yield (seconds - first) / max(tokens / batch - 1.0, 1.0)


def missed_limits(
    line: Line,
    ttft: float | None,
    tpot: float | None,
    request_latency: float | None = None,
) -> list[str]:
    """The limits of a problem that a measured plan exceeds, in words.

    Args:
        line: of the plan.
        ttft: most seconds until the first token, None for no limit.
        tpot: most seconds per further token of a request, None for no limit.
        request_latency: most seconds of a request, None for no limit.
    """
    measured = {
        "ttft": (line.ttft, ttft),
        "tpot": (line.tpot, tpot),
        "request_latency": (line.request_seconds, request_latency),
    }
    return [
        f"limits.{name} is {limit:g} s, measured {seconds:.4g} s"
        for name, (seconds, limit) in measured.items()
        if seconds is not None and limit is not None and seconds > limit
    ]


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Lower and upper quartile."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(low), float(high)


def _ratio(contender: Contender, other: Contender) -> float:
    """Median over groups of speed over the other's."""
    pairs = zip(contender.group_seconds, other.group_seconds, strict=True)
    return median(theirs / mine for mine, theirs in pairs)
