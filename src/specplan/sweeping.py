"""Sweeps: what drafting would gain over values of any keys of a problem."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    from specplan.problems import as_problem, each_backend

    rows: list[Row] = []
    every = [(keys, as_problem(problem)) for keys, problem in problems]
    for done, (keys, problem) in enumerate(every):
        facts = gather(each_backend(problem)[0], progress)
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
