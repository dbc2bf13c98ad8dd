"""Sweeps: what drafting would gain over values of any keys of a problem, and over splits."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specplan.cost_models.devices.parallel import SplitPrice
    from specplan.planner.answer.splits import Splits
    from specplan.planner.problem.schema import Problem
    from specplan.problems import ProblemLike

Row = dict[str, Any]
COLUMNS = ("drafter", "batch", "prompt_tokens", "acceptance", "draft_tokens", "gain", "pays_from")
"""Of a CSV file, after the keys that were swept."""


def sweep(
    problems: Iterable[tuple[Mapping[str, Any], ProblemLike]],
    acceptances: Sequence[float] | None = None,
    progress: Progress = silent,
) -> list[Row]:
    """What the drafters of problems would gain, by load and acceptance.

    Args:
        problems: each with the values that tell it from the others, by their keys.
        acceptances: P(a draft token is accepted | those before it were); None for the profile of
            a drafter that has one, and 0.5 ... 0.9 for the others.
        progress: called after every problem.

    Returns:
        One row per problem, drafter, load and acceptance: `WhatIfRow.as_dict` with the swept keys.

    Raises:
        UsageError: a problem is broken, or nothing in it drafts.
    """
    from specplan.gathering import gather
    from specplan.ir.errors import UsageError
    from specplan.planner.search.what_if import ACCEPTANCES, listed_drafters, what_if
    from specplan.problems import as_problem, each_variant

    rows: list[Row] = []
    every = [(keys, as_problem(problem)) for keys, problem in problems]
    for done, (keys, problem) in enumerate(every):
        facts = gather(each_variant(problem)[0], progress)
        drafters = tuple(dict.fromkeys((*listed_drafters(facts), *facts.profiles)))
        for drafter in drafters:
            own = (None,) if drafter in facts.profiles else ACCEPTANCES
            answers = what_if(facts, [drafter], own if acceptances is None else acceptances)
            rows += [{**keys, **row.as_dict()} for row in answers]
        progress("sweeping", done + 1, len(every))
    if not rows:
        raise UsageError(
            "nothing drafts in this problem",
            where="models.drafts",
            remedy="Add a draft model or head, or name `mtp` in sources.",
        )
    return rows


def as_csv(rows: Sequence[Row], keys: Sequence[str] = ()) -> str:
    """Rows of a sweep as CSV, the swept keys first.

    Args:
        rows: from `sweep`.
        keys: those of them that were swept besides acceptance and batch.
    """
    text = io.StringIO()
    columns = [*keys, *COLUMNS]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def draw(rows: Sequence[Row], path: Path, keys: Sequence[str] = ()) -> None:
    """Write the picture of `figure_of`; the ending of the path says its format (.png, .svg, .pdf).

    Raises:
        ImportError: matplotlib is not installed.
        UsageError: the ending names no format.
    """
    from specplan.ir.errors import UsageError

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure_of(rows, keys).savefig(path)
    except ValueError as error:
        raise UsageError(
            f"no picture has the format of {path.name}",
            where="--plot",
            remedy="End the name with .png, .svg or .pdf.",
        ) from error


def figure_of(rows: Sequence[Row], keys: Sequence[str] = ()) -> Figure:
    """The gain over acceptance, one panel per drafter, one line per load and swept values.

    Where only one acceptance was looked at, over the batch size.

    Args:
        rows: from `sweep`.
        keys: that were swept besides acceptance and batch.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    axis, other = "acceptance", "batch"
    if len({row["acceptance"] for row in rows}) == 1:
        axis, other = other, axis
    drafters = list(dict.fromkeys(row["drafter"] for row in rows))
    prompts = ["prompt_tokens"] if not any("prompt" in key for key in keys) else []
    figure = Figure(figsize=(1.0 + 4.0 * len(drafters), 4.2), layout="constrained")
    panels = figure.subplots(1, len(drafters), squeeze=False, sharey=True)[0]
    for panel, drafter in zip(panels, drafters, strict=True):
        lines: dict[str, list[Row]] = {}
        for row in rows:
            if row["drafter"] == drafter:
                labels = {name: row[name] for name in (*keys, other, *prompts)}
                lines.setdefault(_label(labels, rows), []).append(row)
        for label, line in lines.items():
            points = sorted((row for row in line if row[axis] is not None), key=lambda r: r[axis])
            panel.plot([r[axis] for r in points], [r["gain"] for r in points], "o-", label=label)
        panel.axhline(1.0, color="grey", linewidth=0.8)
        panel.set(title=drafter, xlabel=axis)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize="small")
    panels[0].set_ylabel("speed over no speculation")
    return figure


def _label(values: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """The values in which lines differ."""
    differing = [name for name in values if len({str(row[name]) for row in rows}) > 1]
    texts = [f"{name.rpartition('.')[2].replace('_', ' ')} {values[name]}" for name in differing]
    return ", ".join(texts) or "all"


def drafted_splits(problem: Problem, splits: Splits) -> list[tuple[SplitPrice, str]]:
    """What splits make of each number of requests with the best plan there, and that plan.

    A group of devices that share every layer is a problem of its own, with its part of the
    requests. Pipelines and copies of attention are left out: plans are priced for tensor
    parallelism alone. So are numbers of requests at which nothing is better than no speculation.

    Raises:
        SpecplanError: the problem cannot be planned on any of its groups.
    """
    plain = [one for one in splits.prices if one.split.plain]
    return [
        pair
        for tensor in sorted({one.split.tensor for one in plain})
        for pair in _group(problem, tensor, [one for one in plain if one.split.tensor == tensor])
    ]


def _group(
    problem: Problem, tensor: int, prices: list[SplitPrice]
) -> Iterator[tuple[SplitPrice, str]]:
    """Of all splits into groups of that many devices."""
    from dataclasses import replace

    from specplan.cost_models.devices.device import one_device
    from specplan.gathering import find
    from specplan.ir.errors import InfeasibleError

    batches = tuple(sorted({-(-one.requests // one.split.replicas) for one in prices}))
    load = problem.workload.model_copy(update={"batch_sizes": batches, "request_rate": None})
    device = f"{tensor}x{one_device(problem.device)}" if tensor > 1 else one_device(problem.device)
    alone = {"device": device, "workload": load, "objective": "tpot"}
    try:
        result = find(problem.model_copy(update=alone), silent)
    except InfeasibleError:
        return
    best = {}
    for cell, candidate in enumerate(result.best_of_each):
        if candidate is not None and candidate.drafter is not None:
            estimate = candidate.estimates[cell]
            best[int(estimate.batch)] = candidate.words, estimate
    for one in prices:
        drafted = best.get(-(-one.requests // one.split.replicas))
        if drafted is not None:
            words, estimate = drafted
            memory = float(estimate.memory.total) / tensor
            tpot = float(estimate.seconds_per_token.median)
            yield replace(one, tpot=tpot, memory=memory), words
