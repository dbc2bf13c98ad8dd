"""Source `adjacency`: the tokens that the target last thought likeliest after each token.

Token recycling (Luo et al. 2024, arXiv 2408.08696, section 3): a matrix with one row per token of
the vocabulary; every judged row overwrites that of its token. A tree is looked up by following it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from specplan.ir.plan import SourceState
from specplan.runtime.sources.source import NO_TOKEN, Source, SourceDrafts, Tokens, Wanted


class Adjacency(Source):
    """Successors by token.

    Attributes:
        width: successors kept of a token.
        successors: int32 `[V, width]`, likeliest first; -1 where nothing was learned.
    """

    learns: ClassVar[tuple[str, ...]] = ("logits",)

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.successors = np.full((vocabulary, width), NO_TOKEN, dtype=np.int32)

    @classmethod
    def declared(cls, state: SourceState, sizes: Mapping[str, int], vocabulary: int) -> Adjacency:
        """One place per token of the vocabulary."""
        return cls(vocabulary, sizes["width"])

    @classmethod
    def row_width(cls, sizes: Mapping[str, int]) -> int:
        """As many as it keeps."""
        return sizes["width"]

    @property
    def most_bytes(self) -> float:
        """The whole matrix, from the beginning."""
        return float(self.successors.nbytes)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """Successors of the last token, each followed by its own first successor and so on."""
        drafts = SourceDrafts.nothing(len(texts), wanted)
        if wanted.nodes is not None:
            raise NotImplementedError("adjacency gives continuations side by side")
        shape = (len(texts), wanted.children, wanted.length)
        tokens = np.full(shape, NO_TOKEN, dtype=np.int64)
        last = texts[np.arange(len(texts)), lengths - 1]
        some = min(wanted.children, self.width)
        tokens[:, :some, 0] = self.successors[last, :some]
        for step in range(1, wanted.length):
            above = tokens[:, :, step - 1]
            tokens[:, :, step] = np.where(above >= 0, self.successors[above, 0], NO_TOKEN)
        flat = tokens.reshape(len(texts), -1)
        live = flat >= 0
        return SourceDrafts(np.where(live, flat, 0), drafts.parents, live)

    def learn_rows(self, tokens: Tokens, best: Tokens) -> None:
        """Overwrite the rows of these tokens."""
        self.successors[tokens, : best.shape[1]] = best[:, : self.width]


SOURCE = Adjacency
