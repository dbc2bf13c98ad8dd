"""Trees whose shape is known before the round: options, and the ops that grow them by level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self, TypeVar

from specplan.ir.values import print_atom
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import Pass, number_list
from specplan.planner.trees import GrowLevel, StaticTree, grow_levels
from specplan.planner.trees.candidates import DEPTH, NODES

SettingT = TypeVar("SettingT")


@dataclass(frozen=True)
class TreeOptions(Options):
    """Who drafts, and what shape (see `specplan.planner.trees` for the conventions).

    Attributes:
        draft: name of the draft model or head.
        parents: parent of each drafted node, -1 for children of the root.
        ranks: 0-based order of each node among its siblings.
    """

    derived = MappingProxyType(
        {
            "nodes": Option("drafted nodes", tuple(range(2, max(NODES) + 1)), whole=True),
            "depth": Option("levels", tuple(range(1, DEPTH + 1)), whole=True),
        }
    )

    draft: DraftName
    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    @classmethod
    def of(cls, draft: str, tree: StaticTree) -> Self:
        """The setting of a shape."""
        return cls(draft, tree.parents, tree.ranks)

    @property
    def tree(self) -> StaticTree:
        """The shape."""
        return StaticTree(self.parents, self.ranks)

    @property
    def nodes(self) -> int:
        """Drafted nodes."""
        return len(self.tree)

    @property
    def depth(self) -> int:
        """Levels."""
        return self.tree.depth

    @property
    def words(self) -> str:
        """`chain of 4 by draft`, `tree of 12, depth 5, by draft`."""
        if self.tree.is_chain:
            return f"chain of {self.nodes} by {self.draft}"
        return f"tree of {self.nodes}, depth {self.depth}, by {self.draft}"


def tree_text(
    tree: StaticTree,
    passes: Sequence[Pass],
    *,
    drawn: bool,
    distinct: bool = True,
    result: str = "%c",
) -> str:
    """The tree, by one forward pass and one `grow` per level.

    Args:
        tree: the shape.
        passes: of the drafter, one per level; the last one serves all further levels.
        drawn: children are drawn from the drafter's distribution, else they are the best ranks.
        distinct: drawn children of a node are drawn without replacement, else independently.
        result: name of the tree.
    """

    def logits(index: int, nodes: str) -> tuple[str, str]:
        return f"%q{index} = {passes[min(index, len(passes) - 1)].over(nodes)}", f"%q{index}"

    return grown_text(tree, logits, drawn=drawn, distinct=distinct, result=result)


def grown_text(
    tree: StaticTree,
    logits: Callable[[int, str], tuple[str, str]],
    *,
    drawn: bool,
    distinct: bool = True,
    result: str = "%c",
) -> str:
    """The tree, by one `grow` per level from whatever logits.

    Args:
        tree: the shape.
        logits: of a level, from its index and its nodes that get children: the op that gives them,
            empty where an earlier level's does, and their name.
        drawn: see `tree_text`.
        distinct: see `tree_text`.
        result: name of the tree.
    """
    sampling = "draw_distinct" if distinct else "draw"
    used = 0

    def grow(index: int, grown: str, above: str, nodes: str, level: GrowLevel) -> Iterator[str]:
        nonlocal used
        op, name = logits(index, nodes)
        yield op
        how = f" how={sampling} by=%u{index}" if drawn else ""
        if drawn:
            offset = f" offset={used}" if used else ""
            yield f"%u{index} = uniform {level.nodes} stream=draft{offset}"
        children = number_list(level.children)
        yield f"{grown} = grow {above} at={nodes} logits={name} children={children}{how}"
        used += level.nodes

    return levels_text(tree, grow, result)


def levels_text(
    tree: StaticTree,
    grow: Callable[[int, str, str, str, GrowLevel], Iterator[str]],
    result: str = "%c",
) -> str:
    """The tree, level by level: the nodes that get children are picked, and get them.

    Args:
        tree: the shape.
        grow: ops of a level, from its index, the name of the tree that they give, the tree above,
            its nodes that get children, and how many.
        result: name of the tree.
    """
    lines, newest, levels = ["%t0 = root"], 1, grow_levels(tree)
    for index, level in enumerate(levels):
        above = nodes = f"%t{index}"
        if index:
            nodes = f"%f{index}"
            whole = level.expand == tuple(range(newest))
            only = "" if whole else f" nodes={print_atom(level.expand)}"
            lines.append(f"{nodes} = pick {above} of=newest{only}")
        grown = result if index == len(levels) - 1 else f"%t{index + 1}"
        lines += grow(index, grown, above, nodes, level)
        newest = level.nodes
    return "\n".join(lines)


def layers_text(
    depth: int,
    passes: Sequence[Pass],
    *,
    first: int = 1,
    later: int = 1,
    pick: str = "",
    drawn: bool = False,
    result: str = "%c",
) -> str:
    """A tree whose first level has a pass of its own, and whose other levels grow in a loop.

    Args:
        depth: levels.
        passes: the first one, and that of all deeper levels.
        first: children of the root.
        later: children of each node of the newest level that gets any.
        pick: which nodes these are, `best=4`; empty for all.
        drawn: children are drawn independently, else they are the best ranks; then `later` is 1.
        result: name of the tree.
    """
    draws = f"uniform {first} stream=draft"
    draw, how = (f"%u0 = {draws}", "how=draw by=%u0") if drawn else ("", "")
    text = f"""%t0 = root
%q0 = {passes[0].over("%t0")}
{draw}
{"%t1" if depth > 1 else result} = grow %t0 at=%t0 logits=%q0 children={first} {how}"""
    if depth == 1:
        return text
    draw, how = (f"%u = {draws} offset={first}", "how=draw by=%u") if drawn else ("", "")
    return f"""{text}
{result} = repeat {depth - 1} (%t = %t1) {{
    %f = pick %t of=newest {pick}
    %q = {passes[1].over("%f")}
    {draw}
    %n = grow %t at=%f logits=%q children={later} {how}
    yield %n
}}"""


def drafted_tree(tree: StaticTree, passes: Sequence[Pass], *, drawn: bool) -> str:
    """A chain in a loop, any other tree level by level; the arguments are those of `tree_text`."""
    if tree.is_chain:
        return layers_text(len(tree), passes, drawn=drawn)
    return tree_text(tree, passes, drawn=drawn)


def undominated(
    settings: Iterable[tuple[SettingT, tuple[int, int], float]],
) -> Iterator[SettingT]:
    """Settings that emit more tokens than any earlier one that is no larger.

    Args:
        settings: each with two sizes (levels and nodes) and the mean tokens of its rounds.
    """
    best: list[tuple[int, int, float]] = []
    for setting, (depth, nodes), tokens in settings:
        smaller = [t for d, n, t in best if d <= depth and n <= nodes]
        if not smaller or tokens > max(smaller) + 1e-9:
            best.append((depth, nodes, tokens))
            yield setting
