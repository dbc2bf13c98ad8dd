"""How children are drawn: a node's all at once, and all siblings of a round in one way."""

from __future__ import annotations

from collections.abc import Sequence

from specplan.ir.types import TreeType, Type


class DrawnSiblings:
    """What a round has drawn so far."""

    def __init__(self) -> None:
        self._parents: set[tuple[int, int]] = set()
        self._kinds: set[str] = set()

    def grown(self, how: str, counts: Sequence[int], parents: set[tuple[int, int]]) -> str | None:
        """Why children cannot be drawn so, or None.

        Args:
            how: as `grow` has it.
            counts: children of each node.
            parents: the nodes: their tree's number and their own.
        """
        if not all(counts) or parents & self._parents:
            return "children of a node are drawn in one grow, at least one of them"
        self._parents |= parents
        return self._beside(how) if max(counts) > 1 else None

    def loaded(self, held: Type) -> str | None:
        """Why drawn siblings cannot be carried on, or None: they were drawn independently."""
        siblings = isinstance(held, TreeType) and held.drawn and not held.is_chain
        return self._beside("draw") if siblings else None

    def _beside(self, how: str) -> str | None:
        self._kinds.add(how)
        return "children of a tree are drawn in one way" if len(self._kinds) > 1 else None
