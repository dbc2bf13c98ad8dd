"""Teacher forcing of sources: what the target's own text says of what would be looked up.

A source that learns the text knows at every position exactly what it knows when a round begins
there, and its drafts are certain proposals: a round that starts at a position accepts what is
counted here, at temperature 0 and, as pools do, above. Of a source that learns rows the replay
teaches those along the text; a run also teaches those of rejected nodes, and learns nothing within
a round. What requests share goes on from prompt to prompt, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor

from specplan.cost_models.acceptance.draft_sources import DraftSource
from specplan.runtime.sampling import best
from specplan.runtime.sources.registry import new_source
from specplan.runtime.sources.source import Found, Source, Tokens, Wanted

MOST_NODES = 512
"""Nodes of a merged tree among which the text is looked for."""


@dataclass
class SourceReplay:
    """A source that goes through texts one after another.

    Attributes:
        drafts: what it is.
        vocabulary: tokens of the target.
        path: where a stored one is.
        seen: names of the prompts whose texts it knows.
    """

    drafts: DraftSource
    vocabulary: int
    path: Path | None = None
    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shared = None if self.drafts.scope == "request" else self._new()

    def trace(
        self, name: str, text: Sequence[int], start: int, logits: Callable[[], Tensor]
    ) -> tuple[int | tuple[int, ...], ...]:
        """What is accepted at every position of a text from `start` on; the source learns it.

        Args:
            name: of the prompt.
            text: prompt and continuation, n tokens.
            start: first token to be drafted for, the length of the prompt.
            logits: gives the target's `[n - start, V]`, for a source that learns rows.
        """
        return tuple(self._walk(name, text, start, logits, count=True))

    def remember(
        self, name: str, text: Sequence[int], start: int, logits: Callable[[], Tensor]
    ) -> None:
        """Learn a text that was traced before, where later ones may draft from it."""
        if self._shared is not None and name not in self.seen:
            self._walk(name, text, start, logits, count=False)

    def _new(self) -> Source:
        path = self.path if self.drafts.scope == "read_only" else None
        return new_source(self.drafts.state("source", path), self.vocabulary)

    def _walk(
        self,
        name: str,
        text: Sequence[int],
        start: int,
        logits: Callable[[], Tensor],
        *,
        count: bool,
    ) -> list[int | tuple[int, ...]]:
        self.seen.add(name)
        source = self._new() if self._shared is None else self._shared
        held, last, found = np.asarray(text, dtype=np.int64), self.drafts.last, []
        rows = best(logits()[None], source.width)[0].cpu().numpy() if source.width else None
        key = source.begin(start)
        for position in range(start, len(held)):
            if last and count:
                source.learn_text(key, held[:position], last)
            if count:
                found.append(self._accepted(source, held, position))
            if rows is not None:
                learned = position - start
                source.learn_rows(held[position - 1 : position], rows[learned : learned + 1])
        if last:
            source.learn_text(key, held, last)
        source.close(key)
        return found

    def _accepted(self, source: Source, text: Tokens, position: int) -> int | tuple[int, ...]:
        """What a round that starts here accepts."""
        drafts, (shortest, longest) = self.drafts, self.drafts.match
        lengths = np.array([position])
        ahead = text[position : position + drafts.longest]
        if drafts.evidence == "pools":
            children = drafts.occurrences or MOST_NODES
            wanted = Wanted(shortest, longest, children, drafts.longest, MOST_NODES)
            return _places(source.lookup(text[None], lengths, wanted), ahead, drafts.longest)
        if drafts.evidence == "ranks":
            wanted = Wanted(shortest, longest, source.width, 1)
            found = source.lookup(text[None], lengths, wanted)
            hits = np.flatnonzero(found.live[0] & (found.tokens[0] == text[position]))
            return int(hits[0]) if len(hits) else -1
        wanted = Wanted(shortest, longest, length=drafts.longest)
        found = source.lookup(text[None], lengths, wanted)
        same = (found.tokens[0, : len(ahead)] == ahead) & found.live[0, : len(ahead)]
        return int(np.logical_and.accumulate(same).sum())


def _places(found: Found, ahead: Tokens, layers: int) -> tuple[int, ...]:
    """Where the path that spells a text stands, as a row of `Pools`."""
    live = int(found.live[0].sum())
    tokens, parents = found.tokens[0, :live], found.parents[0, :live]
    depths = np.zeros(live, dtype=np.int64)
    for node in range(live):
        depths[node] = 1 if parents[node] < 0 else depths[parents[node]] + 1
    row, above = [1], -1
    for depth, token in enumerate(ahead.tolist(), start=1):
        spelled = np.flatnonzero((parents == above) & (tokens == token))
        if not len(spelled):
            break
        above = int(spelled[0])
        row += [int((depths[:above] <= cut).sum()) for cut in range(depth, layers + 1)]
    return tuple(row)
