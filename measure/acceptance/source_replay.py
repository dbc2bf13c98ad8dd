"""Teacher forcing of sources: their drafts are compared with the target's own text.

A source that learns the text knows at every position exactly what it knows when a round begins
there, and its drafts are certain proposals: a round that starts at a position accepts what is
counted here, at temperature 0 and, as pools do, above. A source that learns logits is taught those
along the text; a run also teaches those of rejected nodes, and nothing within a round. A shared
source continues from prompt to prompt, in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from specplan.cost_models.acceptance.draft_sources import DraftSource
from specplan.cost_models.acceptance.evidence.lengths import NOTHING
from specplan.ir.types.value_types import depths_of
from specplan.measure.acceptance.teacher import TracedText
from specplan.runtime.sampling import best
from specplan.runtime.sources.registry import new_source
from specplan.runtime.sources.source import Source, SourceDrafts, Tokens, Wanted

MOST_NODES = 512
"""Nodes of a merged tree among which the text is looked for."""


@dataclass
class SourceReplay:
    """A source that goes through texts one after another.

    Attributes:
        drafts: its description.
        vocabulary: tokens of the target.
        path: folder of a stored one.
        seen: names of the prompts whose texts it knows.
    """

    drafts: DraftSource
    vocabulary: int
    path: Path | None = None
    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shared = None if self.drafts.scope == "request" else self._new()

    def trace(self, text: TracedText) -> tuple[int | tuple[int, ...], ...]:
        """Accepted drafts at every position of a text's output; the source learns the text."""
        return tuple(self._walk(text, count=True))

    def remember(self, text: TracedText) -> None:
        """Learn a text that was traced before, if later ones may draft from it."""
        if self._shared is not None and text.name not in self.seen:
            self._walk(text, count=False)

    def _new(self) -> Source:
        path = self.path if self.drafts.scope == "read_only" else None
        return new_source(self.drafts.state("source", path), self.vocabulary)

    def _walk(self, text: TracedText, *, count: bool) -> list[int | tuple[int, ...]]:
        self.seen.add(text.name)
        source = self._new() if self._shared is None else self._shared
        tokens, last, accepted = np.asarray(text.tokens, dtype=np.int64), self.drafts.last, []
        width = source.width
        likeliest = best(text.logits[None], width)[0].cpu().numpy() if width else None
        key = source.begin(text.start)
        for place, position in enumerate(range(text.start, len(tokens))):
            if last and count:
                source.learn_text(key, tokens[:position], last)
            if count:
                accepted.append(self._accepted(source, tokens, position))
            if likeliest is not None:
                source.learn_rows(tokens[position - 1 : position], likeliest[place : place + 1])
        if last:
            source.learn_text(key, tokens, last)
        source.close(key)
        return accepted

    def _accepted(self, source: Source, text: Tokens, position: int) -> int | tuple[int, ...]:
        """Drafts that a round which starts here accepts; `NOTHING` of a chain that is not there."""
        drafts, (shortest, longest) = self.drafts, self.drafts.match
        lengths = np.array([position])
        ahead = text[position : position + drafts.longest]
        if drafts.evidence == "pools":
            children = drafts.occurrences or MOST_NODES
            wanted = Wanted(shortest, longest, children, drafts.longest, MOST_NODES)
            return _places(source.lookup(text[None], lengths, wanted), ahead, drafts.longest)
        if drafts.evidence == "ranks":
            wanted = Wanted(shortest, longest, source.width, 1)
            drafted = source.lookup(text[None], lengths, wanted)
            hits = np.flatnonzero(drafted.live[0] & (drafted.tokens[0] == text[position]))
            return int(hits[0]) if len(hits) else -1
        wanted = Wanted(shortest, longest, length=drafts.longest)
        drafted = source.lookup(text[None], lengths, wanted)
        if not drafted.live[0].any():
            return NOTHING
        same = (drafted.tokens[0, : len(ahead)] == ahead) & drafted.live[0, : len(ahead)]
        return int(np.logical_and.accumulate(same).sum())


def _places(drafts: SourceDrafts, ahead: Tokens, layers: int) -> tuple[int, ...]:
    """Places of the path that spells a text, as a row of `Pools`."""
    live = int(drafts.live[0].sum())
    tokens, parents = drafts.tokens[0, :live], drafts.parents[0, :live]
    depths = np.array(depths_of(parents.tolist()))
    row, above = [1], -1
    for depth, token in enumerate(ahead.tolist(), start=1):
        spelled = np.flatnonzero((parents == above) & (tokens == token))
        if not len(spelled):
            break
        above = int(spelled[0])
        row += [int((depths[:above] <= cut).sum()) for cut in range(depth, layers + 1)]
    return tuple(row)
