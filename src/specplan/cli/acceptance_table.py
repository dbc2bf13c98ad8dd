"""Acceptance by depth and rank, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specplan.cli.output import print_table

if TYPE_CHECKING:
    from specplan.cost_models.acceptance.profile import AcceptanceProfile

MOST_DEPTHS, MOST_RANKS = 4, 4
"""Depths and ranks to print; the file has all of them."""


def hazard_cells(profile: AcceptanceProfile) -> list[list[dict[str, float]]]:
    """Acceptance by depth (from 1) and rank (from 0), with 90 % intervals and counts."""

    def cell(depth: int, rank: int) -> dict[str, float]:
        accepted, trials = profile.hazard_counts(depth, rank)
        interval = profile.hazard_interval(depth, rank)
        return {
            "mean": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "accepted": accepted,
            "trials": trials,
        }

    ranks = MOST_RANKS if profile.evidence.ranked else 1
    return [[cell(depth, rank) for rank in range(ranks)] for depth in range(1, MOST_DEPTHS + 1)]


def print_hazards(title: str, cells: list[list[dict[str, Any]]]) -> None:
    """A table of the cells."""
    rows = [list(map(_words, row)) for row in cells]
    known = [column for row in rows for column, text in enumerate(row, start=1) if text != "-"]
    ranks = max(known, default=1)
    print(title)
    print_table(
        ("depth", *(f">rank {rank}" for rank in range(ranks))),
        [(str(depth), *row[:ranks]) for depth, row in enumerate(rows, start=1)],
    )


def _words(cell: dict[str, float]) -> str:
    if not cell["trials"] or (cell["mean"] == 0.0 and not cell["accepted"] and cell["low"] == 0.0):
        return "-"
    return f"{cell['mean']:.3f} ({cell['low']:.3f} - {cell['high']:.3f})"
