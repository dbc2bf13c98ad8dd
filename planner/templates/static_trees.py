"""Static trees of drafters that give rows level by level: what they range over, and their ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specplan.ir.values import print_atom
from specplan.planner.method import Domain, Options
from specplan.planner.templates.plan_text import number_list
from specplan.planner.trees import GrowLevel, StaticTree, grow_levels
from specplan.planner.trees.candidates import DEPTH, NODES

TREE_DOMAINS = {
    "nodes": Domain(tuple(range(2, max(NODES) + 1)), "drafted nodes", whole=True),
    "depth": Domain(tuple(range(1, DEPTH + 1)), "levels", whole=True),
}
LevelForward = Callable[[int, str], str]
"""The forward that gives the rows of a level: of its number and the nodes that get children."""


@dataclass(frozen=True)
class TreeOptions(Options):
    """Who drafts, and what shape (see `specplan.planner.trees` for the conventions).

    Attributes:
        draft: name of the draft model or head.
        parents: parent of each drafted node, -1 for children of the root.
        ranks: 0-based order of each node among its siblings.
    """

    draft: str
    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    @property
    def tree(self) -> StaticTree:
        """The shape."""
        return StaticTree(self.parents, self.ranks)

    @property
    def words(self) -> str:
        """`chain of 4 by draft`, `tree of 12, depth 5, by draft`."""
        return tree_words(self.tree, self.draft)

    def as_dict(self) -> dict[str, Any]:
        """The options, and the number of nodes and levels for the reader."""
        return {**super().as_dict(), "nodes": len(self.tree), "depth": self.tree.depth}


def tree_words(tree: StaticTree, drafter: str) -> str:
    """`chain of 4 by draft`, `tree of 12, depth 5, by draft`."""
    if tree.is_chain:
        return f"chain of {len(tree)} by {drafter}"
    return f"tree of {len(tree)}, depth {tree.depth}, by {drafter}"


def tree_text(
    tree: StaticTree, forward: LevelForward, *, drawn: bool, distinct: bool = True
) -> str:
    """The tree as `%c`: one forward and one `grow` per level.

    Args:
        tree: the shape.
        forward: writes the forward of a level.
        drawn: children are drawn from the law rather than being the best ranks.
        distinct: drawn children of a node are drawn without replacement, else independently.
    """
    how = ("draw_distinct" if distinct else "draw") if drawn else None
    return "\n".join(["%t0 = root", *_levels(grow_levels(tree), forward, how)])


def chain_text(length: int, forward: LevelForward) -> str:
    """A chain of the best ranks as `%c`: the first level by a pass of its own, others in a loop.

    Args:
        length: drafted tokens.
        forward: writes the forward of level 0, and of level 1 for all deeper ones.
    """
    first = "%c" if length == 1 else "%t1"
    lines = ["%t0 = root", f"%q0 = {forward(0, '%t0')}", f"{first} = grow %t0 at=%t0 logits=%q0"]
    if length > 1:
        lines += [
            f"%c = repeat {length - 1} (%t = %t1) {{",
            "    %f = pick %t of=newest",
            f"    %q = {forward(1, '%f')}",
            "    %n = grow %t at=%f logits=%q",
            "    yield %n",
            "}",
        ]
    return "\n".join(lines)


def _levels(levels: Sequence[GrowLevel], forward: LevelForward, drawn: str | None) -> Iterator[str]:
    used, newest = 0, 1
    for index, level in enumerate(levels):
        above = f"%t{index}"
        tree = "%c" if index == len(levels) - 1 else f"%t{index + 1}"
        nodes = above if index == 0 else f"%f{index}"
        if index:
            whole = level.expand == tuple(range(newest))
            only = "" if whole else f" nodes={print_atom(level.expand)}"
            yield f"{nodes} = pick {above} of=newest{only}"
        yield f"%q{index} = {forward(index, nodes)}"
        how = ""
        if drawn:
            offset = f" offset={used}" if used else ""
            yield f"%u{index} = uniform {level.nodes} stream=draft{offset}"
            how = f" how={drawn} by=%u{index}"
        children = number_list(level.children)
        yield f"{tree} = grow {above} at={nodes} logits=%q{index} children={children}{how}"
        used, newest = used + level.nodes, level.nodes
