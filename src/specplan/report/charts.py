"""Pictures of a decision as SVG that takes its colours from the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from specplan.planner.explain.numbers import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#010203"
_SERIES = {"#010a01": "--chosen", "#010a02": "--plain", "#010a03": "--rival"}
"""Colours that stand for those of the page: matplotlib knows no variables of CSS."""
_PARTS, _BARS = 6, 12
"""Parts of a round with a colour of their own, and most loads with a bar."""


def speed_chart(explanation: Mapping[str, Any]) -> str:
    """Tokens per second by batch size, with the batch sizes at which the plan stops paying.

    Args:
        explanation: of the search, as data.
    """
    lengths = sorted({figures["prompt_tokens"] for figures in explanation["chosen"]["by_batch"]})
    figure, axes = _axes(len(lengths))
    edges = _edges(explanation, lengths)
    for place, length in zip(axes, lengths, strict=True):
        for (label, entry), colour in zip(_series(explanation).items(), _SERIES, strict=False):
            rows = [row for row in entry["by_batch"] if row["prompt_tokens"] == length]
            batches = [row["batch"] for row in rows]
            speeds = [row["tokens_per_second"] for row in rows]
            place.plot(batches, [s["mean"] for s in speeds], "o-", color=colour, label=label)
            lows, highs = ([s[end] for s in speeds] for end in ("low", "high"))
            place.fill_between(batches, lows, highs, color=colour, alpha=0.15, linewidth=0)
            place.vlines(batches, lows, highs, color=colour, alpha=0.4, linewidth=1)
        for edge in edges.get(length, ()):
            place.axvline(edge, color=_INK, linestyle=":", linewidth=1)
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.set_title(f"prompts of {length} tokens", fontsize=9, color=_INK)
        place.set_xlabel("requests in a batch")
        place.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
        place.yaxis.set_major_formatter(lambda value, _: short(value))
        place.yaxis.set_minor_formatter(lambda value, _: "")
        place.set_ylabel("tokens per second")
    axes[0].legend(frameon=False, fontsize=8, labelcolor=_INK)
    return _svg(figure, "Tokens per second by batch size, with 90 % intervals")


def time_chart(explanation: Mapping[str, Any]) -> str:
    """Where the time of a round goes, one bar per load, or per some of many."""
    every = explanation["time"]["chosen"]
    entries = every[:: -(-len(every) // _BARS)]
    figure, (place,) = _axes(1, height=1.4 + 0.4 * len(entries))
    names = _largest(entries)
    labels = [f"batch {entry['batch']}, {entry['prompt_tokens']} tokens" for entry in entries]
    left = [0.0] * len(entries)
    for index, name in enumerate([*names, "the rest"]):
        widths = [1e3 * _seconds(entry, name, names) for entry in entries]
        shade = 0.9 - 0.8 * index / (len(names) + 1)
        place.barh(labels, widths, left=left, color=next(iter(_SERIES)), alpha=shade, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    place.invert_yaxis()
    place.set_xlabel("milliseconds per round")
    place.legend(frameon=False, fontsize=8, labelcolor=_INK, ncols=3, loc="lower left",
                 bbox_to_anchor=(0, 1))  # fmt: skip
    return _svg(figure, "Where the time of a round goes")


def tree_chart(part: Mapping[str, Any]) -> str:
    """The tree that a round verifies, a level per row, the root on top.

    Args:
        part: an entry of the explanation's `acceptance`, with `parents`.
    """
    parents: Sequence[int] = part["parents"]
    places = _places(parents)
    depth = -min(y for _, y in places.values())
    figure, (place,) = _axes(1, height=0.8 + 0.4 * depth)
    for node, parent in enumerate(parents):
        (x, y), (above, top) = places[node], places[parent]
        place.plot([above, x], [top, y], color=_INK, linewidth=0.7, zorder=1)
    xs, ys = zip(*places.values(), strict=True)
    place.scatter(xs, ys, s=30, color=next(iter(_SERIES)), zorder=2)
    place.axis("off")
    return _svg(figure, f"The tree of {part['words']}: {len(parents)} nodes, {depth} levels")


def _places(parents: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Where nodes stand, the root (-1) too: leaves side by side, parents above their middle."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    depth = {-1: 0}
    for node, parent in enumerate(parents):
        depth[node] = depth[parent] + 1
    across: dict[int, float] = {}
    leaves = iter(range(len(parents) + 1))
    for node in _leaves_in_order(children):
        across[node] = float(next(leaves))
    for node in sorted(children, key=lambda n: -depth[n]):
        below = [across[child] for child in children[node]]
        across[node] = sum(below) / len(below)
    return {node: (across[node], -float(depth[node])) for node in depth}


def _leaves_in_order(children: Mapping[int, Sequence[int]]) -> list[int]:
    nodes, waiting = [], [-1]
    while waiting:
        node = waiting.pop()
        below = children.get(node, ())
        waiting += reversed(below)
        nodes += [] if below else [node]
    return nodes


def _series(explanation: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What is drawn: the chosen plan, plain decoding, and the best that drafts where neither is."""
    plain, rival = explanation["plain"], explanation["best_drafting"]
    if explanation["chosen"]["method"] == plain["method"]:
        return {"plain decoding, chosen": plain} | ({"best that drafts": rival} if rival else {})
    return {"chosen plan": explanation["chosen"], "plain decoding": plain}


def _edges(explanation: Mapping[str, Any], lengths: Sequence[int]) -> dict[int, list[float]]:
    """Batch sizes at which a plan that drafts stops or begins to pay.

    By length of prompts: they are known for the mean length, and stand with the nearest one.
    """
    edges_by_length: dict[int, list[float]] = {}
    for part in explanation["break_even"]:
        for point in part["points"]:
            if point["unknown"] == "batch":
                edges = [edge for stretch in point["pays"] for edge in stretch if edge is not None]
                near = min(lengths, key=lambda length: abs(length - point["prompt_tokens"]))
                edges_by_length.setdefault(near, []).extend(edge["mean"] for edge in edges)
    return edges_by_length


def _largest(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    sums: dict[str, float] = {}
    for entry in entries:
        for part in entry["parts"]:
            sums[_part(part)] = sums.get(_part(part), 0.0) + part["seconds"]["mean"]
    return sorted(sums, key=lambda name: -sums[name])[:_PARTS]


def _seconds(entry: Mapping[str, Any], name: str, named: Sequence[str]) -> float:
    """Of one part of a round, or of all that are not named."""
    parts = entry["parts"]
    if name == "the rest":
        return float(sum(p["seconds"]["mean"] for p in parts if _part(p) not in named))
    return float(sum(p["seconds"]["mean"] for p in parts if _part(p) == name))


def _part(part: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (part["op"], part["model"])))


def _axes(count: int, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """Two in a row, in the ink of the page; `height` of a row in inches."""
    from matplotlib.figure import Figure

    rows, columns = -(-count // 2), min(count, 2)
    figure = Figure(figsize=(7.2, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
    for place in axes:
        place.set_facecolor("none")
        place.tick_params(colors=_INK, which="both", labelsize=8)
        for side, spine in place.spines.items():
            spine.set_color(_INK)
            spine.set_visible(side in ("left", "bottom"))
        place.xaxis.label.set_color(_INK)
        place.yaxis.label.set_color(_INK)
        place.xaxis.label.set_fontsize(9)
        place.yaxis.label.set_fontsize(9)
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    """The figure as an element that scales, with its colours taken from the page."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specplan"}):
        target = io.StringIO()
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    text = target.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, variable in (_SERIES | {_INK: "--ink"}).items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
