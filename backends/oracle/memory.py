"""What one request remembers of a model: "this state entered layer l at this path"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specplan.ir.meaning import Path


@dataclass
class Memory:
    """Facts of a cache or a track.

    Attributes:
        track: it holds hidden states, by level; levels beyond the first have gaps by nature.
        exact: by layer and path, what passes wrote for good, until a commit.
        scratch: the same of `write=scratch`; gone when the round ends.
        whole: of a view, the memory of the cache that it is a copy of.
        upto: of a view, tokens of the text at its last refresh.
        visible: of a view, the text positions it holds, by layer and key/value head, or by layer.
        forgotten: of a small cache, text positions that it has dropped.
    """

    track: bool = False
    exact: dict[int, dict[Path, Any]] = field(default_factory=dict)
    scratch: dict[int, dict[Path, Any]] = field(default_factory=dict)
    whole: Memory | None = None
    upto: int = 0
    visible: Mapping[int, list[list[int]]] = field(default_factory=dict)
    forgotten: int = 0

    def get(self, layer: int, path: Path, write: str = "exact") -> Any:
        """The fact of a path at a layer, or None."""
        if write == "scratch" and path in self.scratch.get(layer, {}):
            return self.scratch[layer][path]
        fact = self.exact.get(layer, {}).get(path)
        if fact is None and self.whole is not None and len(path) <= self.upto:
            return self.whole.get(layer, path)
        return fact

    def put(self, layer: int, path: Path, fact: Any, write: str) -> None:
        """Remember a fact."""
        facts = self.exact if write == "exact" else self.scratch
        facts.setdefault(layer, {})[path] = fact

    def commit(self, text: Path, begin: int, alive: Iterable[Path], drafted: bool = True) -> None:
        """Keep what was emitted, as far as there is no gap, what the text said before, and drafts.

        Args:
            text: with what was emitted.
            begin: tokens of it before the round.
            alive: paths of drafted nodes that live on.
            drafted: what was emitted is kept; else it is read again.
        """
        stays = set(alive)
        for layer, facts in self.exact.items():
            size = len(text) + 1 if self.track and layer else begin + 1
            while drafted and size <= len(text) and text[:size] in facts:
                size += 1
            self.exact[layer] = {
                path: fact
                for path, fact in facts.items()
                if path in stays or (len(path) < size and path == text[: len(path)])
            }

    def forget(self, text: Path, sink: int, budget: int) -> None:
        """Of a small cache: keep the first `sink` tokens of the text and the latest of the rest."""
        for facts in self.exact.values():
            there = [size for size in range(1, len(text) + 1) if text[:size] in facts]
            later = [size for size in there if size > sink]
            for size in later[: max(len(there) - budget, 0)]:
                del facts[text[:size]]
                self.forgotten = max(self.forgotten, size)

    def read(self, text: Path) -> int:
        """Tokens of the text that the first layer has read without a gap."""
        facts, size = self.exact.get(min(self.exact, default=0), {}), 0
        while size < len(text) and (text[: size + 1] in facts or size < self.forgotten):
            size += 1
        return size
