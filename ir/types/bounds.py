"""The numbers an op may hold: the least of each attribute, and ceilings on static sizes."""

from __future__ import annotations

from specplan.ir.errors import RuleError
from specplan.ir.values import Range, Span

LARGEST_TREE = 1 << 11
"""Drafted nodes of one tree."""
MOST_STEPS = 1 << 14
"""Ops of a round with every loop unrolled."""
MOST_WORK = 1 << 21
"""Nodes of all trees, picks and rows that a round with every loop unrolled defines."""
LARGEST = (1 << 31) - 1
"""Token numbers, text lengths and every other attribute."""

LEAST = {
    "children": 0, "keep": 1, "length": 1, "nodes": 0, "match": 0, "tokens": 0, "upto": 1,
    "map": 0, "token": 0, "best": 1, "worst": 1, "pending": 0, "shift": 0, "count": 0,
    "offset": 0, "last": 1, "budget": 1, "layer": 0, "batch": 1, "context": 0, "temperature": 0,
    "levels": 1, "most": 1, "above": 0,
}  # fmt: skip


def check_bounds(item: object, what: str) -> None:
    """Refuse an op or statement that holds a number out of bounds.

    Raises:
        RuleError: `size`, naming the attribute.
    """
    for field in vars(item):
        attribute = getattr(item, field)
        for number in attribute if isinstance(attribute, tuple) else (attribute,):
            match number:
                case bool() | str():
                    continue
                case Span(start, stop) if not 0 <= start <= stop <= LARGEST:
                    raise RuleError(
                        "size", f"{what} {field}: a span is start:stop with 0 <= start <= stop"
                    )
                case Range(low, high) if not LEAST.get(field, 0) <= low <= high:
                    raise RuleError(
                        "size", f"{what} {field}: a range is low..high with low <= high"
                    )
                case int() | float() if not LEAST.get(field, 0) <= number <= LARGEST:
                    bounds = f"{LEAST.get(field, 0)} to {LARGEST}"
                    raise RuleError("size", f"{what} {field}={number} is not within {bounds}")


def check_tree_size(nodes: int) -> None:
    """Refuse a tree that is larger than any round drafts.

    Raises:
        RuleError: `size`.
    """
    if not 0 <= nodes <= LARGEST_TREE:
        raise RuleError("size", f"the tree has {nodes} nodes; the limit is {LARGEST_TREE}")
