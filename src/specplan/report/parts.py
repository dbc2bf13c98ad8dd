"""Drafted trees, and where the time of a step goes, as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specplan.report.canvas import INK, WITH, legend, new_axes, svg

_PARTS, _BARS = 6, 12
"""Parts of a step with a shade of their own, and most operating points with a bar."""


def tree_chart(part: Mapping[str, Any]) -> str:
    """The tree that a step verifies, a level per row, the root on top.

    Args:
        part: an entry of the explanation's `acceptance`, with `parents`.
    """
    parents: Sequence[int] = part["parents"]
    places = _places(parents)
    depth = -min(y for _, y in places.values())
    figure, (place,) = new_axes(height=0.8 + 0.4 * depth)
    for node, parent in enumerate(parents):
        (x, y), (above, top) = places[node], places[parent]
        place.plot([above, x], [top, y], color=INK, linewidth=0.7, zorder=1)
    xs, ys = zip(*places.values(), strict=True)
    place.scatter(xs, ys, s=30, color=WITH, zorder=2)
    place.axis("off")
    return svg(figure, f"The drafted tree: {len(parents)} nodes, {depth} levels")


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


def time_chart(explanation: Mapping[str, Any]) -> str:
    """Where the time of a step goes, one bar per operating point, or per some of many."""
    every = explanation["time"]["chosen"]
    entries = every[:: -(-len(every) // _BARS)]
    figure, (place,) = new_axes(height=1.5 + 0.3 * len(entries))
    names = _largest(entries)
    labels = [f"{entry['batch']} x {entry['prompt_tokens']}" for entry in entries]
    left = [0.0] * len(entries)
    for index, name in enumerate([*names, "the rest"]):
        widths = [1e3 * _seconds(entry, name, names) for entry in entries]
        shade = 0.9 - 0.8 * index / (len(names) + 1)
        place.barh(labels, widths, left=left, color=WITH, alpha=shade, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    place.invert_yaxis()
    place.set_xlabel("milliseconds per step")
    place.set_ylabel("requests x prompt")
    legend(place, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return svg(figure, "Where the time of a step goes")


def _largest(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    sums: dict[str, float] = {}
    for entry in entries:
        for part in entry["parts"]:
            sums[part_name(part)] = sums.get(part_name(part), 0.0) + part["seconds"]["mean"]
    return sorted(sums, key=lambda name: -sums[name])[:_PARTS]


def _seconds(entry: Mapping[str, Any], name: str, named: Sequence[str]) -> float:
    """Of one part of a step, or of all that are not named."""
    parts = entry["parts"]
    if name == "the rest":
        return float(sum(p["seconds"]["mean"] for p in parts if part_name(p) not in named))
    return float(sum(p["seconds"]["mean"] for p in parts if part_name(p) == name))


def part_name(part: Mapping[str, Any]) -> str:
    """An op of a step with the model that it runs."""
    if part["op"] == "round":
        return "the loop around it"
    return " ".join(filter(None, (part["op"], part["model"])))
