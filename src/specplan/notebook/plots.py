"""Pictures of rows, by matplotlib (extra `report`)."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.notebook.tables import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TPOT_BY_BATCH = (("batch", "requests in a batch"), "time per output token (TPOT), ms")
"""Axes of `plot_lines`."""


@dataclass(frozen=True, repr=False)
class Plot:
    """A figure that a notebook shows, and that can be saved.

    Attributes:
        figure: matplotlib's.
    """

    figure: Figure

    def save(self, path: Path | str) -> None:
        """Write the picture; the ending of the name says the format (.png, .svg, .pdf)."""
        self.figure.savefig(path)

    def _repr_svg_(self) -> str:
        text = io.StringIO()
        self.figure.savefig(text, format="svg")
        return text.getvalue()

    def __repr__(self) -> str:
        return "Plot(.save(path), or show it in a notebook)"


def plot_lines(
    series: Iterable[tuple[str, Sequence[Row]]],
    columns: Sequence[tuple[str, str]],
    x: tuple[str, str],
    label: str,
) -> Plot:
    """Columns of rows over another column, one panel.

    Args:
        series: rows with the label of their lines.
        columns: columns of the vertical axis, each with the name of its line.
        x: the column of the horizontal axis, and its label.
        label: of the vertical axis, with the unit.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    panel = figure.subplots()
    across, words = x
    for head, rows in series:
        for column, name in columns:
            points = sorted((row[across], row[column]) for row in rows if row[column] is not None)
            line = f"{head} {name}".strip()
            panel.plot(*zip(*points, strict=True), "o-", label=line) if points else None
    panel.set(xlabel=words, ylabel=label)
    panel.set_ylim(bottom=0.0)
    panel.legend()
    return Plot(figure)
