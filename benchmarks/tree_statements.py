"""The published dynamic programme for tree shapes, stated for comparison.

Sequoia (arXiv 2402.12374, section 3.2): T[m, l, b] is the best value of a tree of exactly m nodes
and at most l levels whose root has exactly b children, the root counted in m and l. Each statement
returns the best value of the largest size and depth, and the tree as the sizes below each node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NEVER = float("-inf")
Splits = dict[tuple[int, int, int], list[tuple[int, int, int]]]
"""(size, levels, children of the root) of a tree -> the same of its children."""


def _store(kind: str, shape: tuple[int, int, int]) -> tuple[Any, Callable[[Any], Any]]:
    """An empty table of a kind, and how its last axis is maximised."""
    if kind == "torch":
        import torch

        return torch.full(shape, NEVER), lambda row: row.max()
    if kind == "numpy":
        return np.full(shape, NEVER), lambda row: row.max()
    sizes, levels, children = shape
    return [[[NEVER] * children for _ in range(levels)] for _ in range(sizes)], max


def published_store() -> str:
    """What the published programme is timed with: torch, or NumPy where there is no torch."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return "numpy"
    return "torch"


def _argmax(row: Any) -> int:
    return row.index(max(row)) if isinstance(row, list) else int(row.argmax())


def loops_over(
    kind: str, rates: Sequence[float], budget: int, depth: int
) -> tuple[float, list[tuple[int, int, int]]]:
    """The published loops over a table of lists, of NumPy elements or of torch elements."""
    np.seterr(invalid="ignore")
    table, best_of = _store(kind, (budget + 1, depth + 1, len(rates) + 1))
    p = [0.0, *rates]
    splits: Splits = {}
    for l in range(1, depth + 1):  # noqa: E741 - the letters of the paper
        table[1][l][0] = 1.0
        splits[1, l, 0] = []
    for m in range(2, budget + 1):
        for l in range(2, depth + 1):  # noqa: E741
            for b in range(1, len(rates) + 1):
                best, best_y = NEVER, 0
                for y in range(1, m):
                    # where nothing fits: -inf, or 0 * -inf, which is not greater than anything
                    value = table[y][l][b - 1] + p[b] * best_of(table[m - y][l - 1])
                    if value > best:
                        best, best_y = value, y
                table[m][l][b] = best
                if best > NEVER:
                    below = (m - best_y, l - 1, _argmax(table[m - best_y][l - 1]))
                    splits[m, l, b] = [*splits[best_y, l, b - 1], below]
    return _largest(table, splits, budget, depth)


def sheet_programme(
    rates: Sequence[float], budget: int, depth: int
) -> tuple[float, list[tuple[int, int, int]]]:
    """Plain lists; the best number of children is looked for once per size and level."""
    table, _ = _store("lists", (budget + 1, depth + 1, len(rates) + 1))
    splits: Splits = {}
    for l in range(1, depth + 1):  # noqa: E741
        table[1][l][0] = 1.0
        splits[1, l, 0] = []
    for m in range(2, budget + 1):
        for l in range(2, depth + 1):  # noqa: E741
            children = [max(table[y][l - 1]) for y in range(m)]
            for b, rate in enumerate(rates, start=1):
                best, best_y = NEVER, 0
                for y in range(1, m):
                    if children[m - y] > NEVER:
                        value = table[y][l][b - 1] + rate * children[m - y]
                        if value > best:
                            best, best_y = value, y
                table[m][l][b] = best
                if best > NEVER:
                    below = (m - best_y, l - 1, _argmax(table[m - best_y][l - 1]))
                    splits[m, l, b] = [*splits[best_y, l, b - 1], below]
    return _largest(table, splits, budget, depth)


def numpy_programme(
    rates: Sequence[float], budget: int, depth: int
) -> tuple[float, list[tuple[int, int, int]]]:
    """All splits of a size, all levels and all ranks at once; the tree is traced at the end."""
    p = np.array(rates)
    table = np.full((depth + 1, len(p) + 1, budget + 1), NEVER)
    table[1:, 0, 1] = 1.0
    best = np.full((depth + 1, budget + 1), NEVER)
    best[1:, 1] = 1.0
    with np.errstate(invalid="ignore"):
        for m in range(2, budget + 1):
            # exactly m nodes in so few levels may not fit: 0 * -inf is not a number
            brought = np.nan_to_num(p[:, None] * best[1:-1, None, 1:m], nan=NEVER, neginf=NEVER)
            table[2:, 1:, m] = (table[2:, :-1, m - 1 : 0 : -1] + brought).max(axis=-1)
            best[2:, m] = table[2:, :, m].max(axis=1)
    sizes: list[tuple[int, int, int]] = []
    waiting = [(budget, depth)]
    while waiting:
        m, level = waiting.pop()
        b = int(table[level, :, m].argmax())
        sizes.append((m, level, b))
        for rank in range(b, 0, -1):
            sums = table[level, rank - 1, m - 1 : 0 : -1] + p[rank - 1] * best[level - 1, 1:m]
            y = 1 + int(np.nan_to_num(sums, nan=NEVER).argmax())
            waiting.append((y, level - 1))
            m -= y
    return float(best[depth, budget]), sizes


def _largest(
    table: Any, splits: Splits, budget: int, depth: int
) -> tuple[float, list[tuple[int, int, int]]]:
    b = _argmax(table[budget][depth])
    nodes = [(budget, depth, b)]
    for node in nodes:
        nodes.extend(splits[node])
    return float(table[budget][depth][b]), nodes
