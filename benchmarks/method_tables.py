"""What `methods.py` found, as one summary and as tables in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from statistics import fmean
from typing import Any

from specplan.planner import PLAIN

CLOSE = 0.15
"""A prediction within this part of the measured time counts as right."""


def summary(columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the issue of predictions and of choices comes down to."""
    errors = [
        each["predicted_seconds_per_token"] / each["seconds_per_token"] - 1.0
        for column in columns
        for each in column["cells"]
    ]
    regrets = [max(column["regret"], 0.0) for column in columns]
    tuned = [max(column["tuned"]["regret"], 0.0) for column in columns if "tuned" in column]
    return {
        "date": date.today().isoformat(),
        "columns": list(columns),
        "cells": len(errors),
        "predicted_within_15_percent": fmean(abs(error) <= CLOSE for error in errors),
        "mean_error": fmean(errors),
        "mean_regret": fmean(regrets),
        "worst_regret": max(regrets),
        "worst_tuned_regret": max(tuned, default=None),
    }


def joined(
    known: Sequence[Mapping[str, Any]], later_columns: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Columns of an earlier run with the cells of methods that ran later.

    Speeds stay over plain decoding of the run that they are of, as measured and as predicted; picks
    stay those of the earlier run, and `joined` names the methods that they were made without.
    """
    later = {_load(column): column for column in later_columns}
    return [
        _joined(column, later[_load(column)]) if _load(column) in later else dict(column)
        for column in known
    ]


def _joined(column: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    (plain,) = (cell for cell in later["cells"] if cell["method"] == PLAIN)
    seconds = plain["predicted_seconds_per_token"]
    new = {
        cell["method"]: cell | {"predicted_ratio": seconds / cell["predicted_seconds_per_token"]}
        for cell in later["cells"]
        if cell is not plain
    }
    earlier = [cell for cell in column["cells"] if cell["method"] not in new]
    cells = sorted([*earlier, *new.values()], key=lambda cell: str(cell["method"]))
    return {**column, "cells": cells, "joined": sorted({*column.get("joined", ()), *new})}


def _load(column: Mapping[str, Any]) -> tuple[Any, ...]:
    return column["task"], column["temperature"], column["batch"]


def table(column: Mapping[str, Any]) -> str:
    """A column in words, fastest first."""
    title = "{task}, temperature {temperature}, batch {batch}".format_map(column)
    rows = [f"\n{title}: picked {_contested(column)}"]
    if "tuned" in column:
        rows.append("tuned for {minutes:g} minutes: ".format_map(column["tuned"]))
        rows[-1] += _contested(column["tuned"])
    for each in sorted(column["cells"], key=lambda one: one["seconds_per_token"]):
        measured, predicted = each["seconds_per_token"], each["predicted_seconds_per_token"]
        rows.append(
            f"  {each['method']:20s} {each['tokens_per_round']:5.2f} tokens a round, "
            f"{measured * 1e3:6.2f} ms a token, predicted {predicted * 1e3:6.2f} "
            f"({predicted / measured - 1:+4.0%}), {each['ratio']:.2f} x plain; {each['words']}"
        )
    for peer in column["peers"]:
        different = peer.get("different_outputs")  # files before there was one hold none
        note = "" if different is None else f", {different} outputs differ"
        rows.append(f"  {peer['ratio']:.2f} x transformers' {peer['method']}{note}")
    return "\n".join(rows)


def _contested(choice: Mapping[str, Any]) -> str:
    final = choice["final"]
    return (
        f"{final['chosen']}; {final['best']} saves {choice['regret']:.1%} "
        f"({final['low']:.1%} to {final['high']:.1%}, {final['turns']} turns)"
    )
