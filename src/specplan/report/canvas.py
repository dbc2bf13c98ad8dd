"""Figures as SVG elements that take their colours from the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
WITH, WITHOUT = "#010a01", "#010a02"
LINES = (WITH, "#010a03", "#010a04", "#010a05")
"""Colours of lines that stand for several operating points."""
MARKERS = ("o", "s", "^", "D")
WIDTH = 4.6
"""Of a figure, in inches; a page shows it as wide as its column."""
_VARIABLES = {
    INK: "--ink", WITHOUT: "--faint", **{one: f"--line-{n}" for n, one in enumerate(LINES, 1)},
}  # fmt: skip
"""Colours that stand for those of the page: matplotlib knows no variables of CSS."""


def new_axes(count: int = 1, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """Panels in the ink of the page, two in a row.

    Args:
        count: of panels.
        height: of a row, in inches.
    """
    from matplotlib.figure import Figure

    rows, across = -(-count // 2), min(count, 2)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, across, place + 1) for place in range(count)]
    for place in axes:
        place.set_facecolor("none")
        place.tick_params(colors=INK, which="both", labelsize=8)
        for side, spine in place.spines.items():
            spine.set_color(INK)
            spine.set_visible(side in ("left", "bottom"))
        for axis in (place.xaxis, place.yaxis):
            axis.label.set_color(INK)
            axis.label.set_fontsize(9)
    return figure, axes


def plain_logarithm(axis: Any, numbers: Sequence[float]) -> None:
    """Plain numbers at a few places of an axis that is logarithmic.

    Args:
        axis: of a panel, with a logarithmic scale.
        numbers: that are drawn along it, positive.
    """
    from matplotlib.ticker import FixedLocator, NullFormatter

    wide = max(numbers) > 8 * min(numbers)
    steps = (1, 2, 5) if wide else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    marks = [step * 10.0**power for power in range(-3, 7) for step in steps]
    axis.set_major_locator(FixedLocator(marks))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def legend(place: Axes, **where: Any) -> None:
    """The names of lines, in the ink of the page."""
    place.legend(frameon=False, fontsize=8, labelcolor=INK, **where)


def shared_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """The names of the lines that all panels have: in a single panel, else below them."""
    if len(axes) == 1:
        legend(axes[0])
        return
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, frameon=False, fontsize=8,
                  labelcolor=INK)  # fmt: skip


def svg(figure: Figure, title: str) -> str:
    """The figure as an element that scales, with its colours taken from the page."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specplan"}):
        target = io.StringIO()
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    text = target.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
