"""Trees of well-known forms, as (parents, ranks)."""

from __future__ import annotations

Tree = tuple[tuple[int, ...], tuple[int, ...]]


def chain(length: int) -> Tree:
    return tuple(range(-1, length - 1)), (0,) * length


def expansion(*widths: int) -> Tree:
    """Every node of level i - 1 has widths[i - 1] children."""
    parents: list[int] = []
    ranks: list[int] = []
    level = [-1]
    for width in widths:
        newest = []
        for parent in level:
            for rank in range(width):
                parents.append(parent)
                ranks.append(rank)
                newest.append(len(parents) - 1)
        level = newest
    return tuple(parents), tuple(ranks)


def independent_chains(width: int, depth: int) -> Tree:
    parents: list[int] = []
    ranks: list[int] = []
    for chain in range(width):
        for level in range(depth):
            parents.append(len(parents) - 1 if level else -1)
            ranks.append(chain if level == 0 else 0)
    return tuple(parents), tuple(ranks)
