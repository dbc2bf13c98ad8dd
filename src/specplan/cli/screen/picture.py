"""What the rounds of a chosen plan draft, drawn with plain characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ROOT = -1


def picture_lines(explanation: Mapping[str, Any]) -> Iterator[str]:
    """The drafted tree of every round that drafts; nothing where plain decoding was chosen.

    Args:
        explanation: from `explain`, or read back from a bundle's report.
    """
    if explanation["verdict"] not in ("speculate", "plain_refused"):
        return
    for part in explanation["acceptance"]:
        parents, levels = part.get("parents"), len(part["by_depth"])
        title = f'Drafted by "{part["drafter"]}" ({part["words"]})'
        if parents is None:
            yield f"{title}: a shape that depends on the text, of at most {levels} levels."
        else:
            most = ", at most" if part.get("may_end") else ""
            yield f"{title}{most}; numbers are ranks:"
            yield from (f"  {line}" for line in tree_lines(parents))


def tree_lines(parents: Sequence[int]) -> list[str]:
    """A tree with one line per leaf, every node as its rank, the order among its siblings.

    Args:
        parents: of each node, an earlier one, or -1 for the root, which is drawn as `root`.
    """
    children: dict[int, list[int]] = {node: [] for node in range(_ROOT, len(parents))}
    for node, parent in enumerate(parents):
        children[parent].append(node)
    drawn: dict[int, list[str]] = {}
    for node in range(len(parents) - 1, _ROOT, -1):  # children come behind their parents
        name = str(children[parents[node]].index(node))
        drawn[node] = _beside(name, [drawn[child] for child in children[node]])
    return _beside("root", [drawn[child] for child in children[_ROOT]])


def _beside(name: str, below: Sequence[Sequence[str]]) -> list[str]:
    """A node's name, and what was drawn of its children to the right of it."""
    if not below:
        return [name]
    if len(below) == 1:
        first, *others = below[0]
        return [f"{name} --- {first}", *(" " * (len(name) + 5) + line for line in others)]
    lines = []
    for place, (first, *others) in enumerate(below):
        last = place == len(below) - 1
        before = " " * len(name) + (" `- " if last else " |- ")
        lines.append((f"{name} +- " if place == 0 else before) + first)
        after = " " * len(name) + ("    " if last else " |  ")
        lines += [after + line for line in others]
    return lines
