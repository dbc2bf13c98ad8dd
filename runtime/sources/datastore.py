"""Source `datastore`: the tokens that followed a text's end in a memory-mapped corpus.

REST (He et al. 2023, arXiv 2311.08252): the longest end of the text that occurs in the corpus is
looked for; what followed its occurrences is merged into a tree of the commonest tokens. Other than
there, every place of the corpus is sorted by the tokens *before* it, the nearest first, so that one
binary search finds the longest match of any length, and the neighbouring occurrences are those
whose context is most like the text's. The sort goes as far back as two keys of 64 bits hold;
matches that are longer are ranked among the neighbouring occurrences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import UsageError
from specplan.ir.files import read_json
from specplan.ir.plan import SourceState
from specplan.runtime.sources.continuations import continuation_trees, cut_at_ends
from specplan.runtime.sources.source import NO_TOKEN, Source, SourceDrafts, Tokens, Wanted

SCHEMA_VERSION = 1
ABOUT = "datastore.json"
_NEAR = 8
"""A search may stop this near to a query's place: its neighbours are compared anyway."""
_PROBES = 8
"""Parts into which a search step divides the places between two bounds."""
_PARTS = np.arange(_PROBES + 1)
_LOOKUPS, _SHARD_LOOKUPS = 1e6, 2.5e5
"""Bytes of 64 lookups at once, and of as many in each shard; the corpus is the page cache's."""
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Packing:
    """How tokens are packed into keys that sort as they do.

    Attributes:
        vocabulary: tokens; the number after the last stands for none.
    """

    vocabulary: int

    @cached_property
    def bits(self) -> int:
        """Of a token."""
        return max(1, self.vocabulary.bit_length())

    @cached_property
    def tokens(self) -> int:
        """In a key."""
        return 64 // self.bits

    @property
    def dtype(self) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
        """Of stored tokens, little-endian."""
        return np.dtype("<u2") if self.vocabulary < 1 << 16 else np.dtype("<u4")

    @cached_property
    def units(self) -> Keys:
        """What each token of a key is multiplied by, the nearest token first."""
        return np.array([1 << self.bits * n for n in range(self.tokens - 1, -1, -1)], np.uint64)

    def keys(self, contexts: NDArray[np.integer]) -> Keys:
        """Keys `[...]` of contexts `[..., tokens]`, the nearest token first."""
        packed: Keys = contexts.astype(np.uint64) @ self.units
        return packed

    def alike(self, one: Keys, other: Keys) -> Tokens:
        """The number of tokens that two keys share, from the nearest on."""
        differs = one ^ other
        common = np.zeros(differs.shape, dtype=np.int8)
        for unit in self.units:
            common += (differs < unit).view(np.int8)
        return common.astype(np.int64)


def stored_folder(state: SourceState, what: str) -> Path:
    """The folder that a plan names for a source that was stored.

    Args:
        state: the declaration.
        what: the source with its verb, for the message: "a datastore is".

    Raises:
        UsageError: it names none.
    """
    if state.path is None:
        raise UsageError(
            f"{what} read from a folder",
            where=f"state @{state.name}",
            remedy="Declare it with path= and scope=read_only.",
        )
    return Path(state.path)


class Datastore(Source):
    """A corpus and its places, sorted shard by shard.

    Args:
        folder: made by `specplan datastore build`.

    Raises:
        UsageError: it is missing or unfinished.
    """

    merges: ClassVar[bool] = True

    def __init__(self, folder: Path, vocabulary: int, order: int) -> None:
        super().__init__()
        if not (folder / ABOUT).is_file():
            raise UsageError(
                "there is no finished datastore",
                where=str(folder),
                remedy="Make it with `specplan datastore build`; what was done is kept.",
            )
        about = read_json(folder / ABOUT, "datastore")
        if about.get("schema_version") != SCHEMA_VERSION or about["vocabulary"] > vocabulary:
            raise UsageError(
                f"the datastore is of a vocabulary of {about.get('vocabulary')}, the target has "
                f"{vocabulary}",
                where=str(folder),
                remedy="Build it anew with the target's tokenizer.",
            )
        self.order = order
        self.packing = Packing(about["vocabulary"])
        self._ends = [int(end) for end in about["ends"]]
        self._bounds = np.array([[0, *self._ends[:-1]], self._ends])
        self._tokens = _mapped(folder / "tokens.bin", self.packing.dtype)
        self._keys = _mapped(folder / "keys.bin", np.dtype("<u8"))
        self._places = _mapped(folder / "places.bin", np.dtype("<u4"))

    @classmethod
    def declared(cls, state: SourceState, sizes: Mapping[str, int], vocabulary: int) -> Datastore:
        """The datastore in the folder that the plan names."""
        return cls(stored_folder(state, "a datastore is"), vocabulary, sizes["order"])

    @property
    def most_bytes(self) -> float:
        """Memory of 64 lookups at once; the files are mapped."""
        return _LOOKUPS + _SHARD_LOOKUPS * len(self._ends)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """The continuations of the places whose context is most like each text's end."""
        reach = min(wanted.longest, self.order)
        queries = self._queries(texts, lengths, reach)
        most = wanted.children if wanted.nodes is not None else max(16, wanted.children)
        index, alike = self._neighbours(queries, most, reach)
        alike = np.minimum(alike, np.minimum(lengths, reach)[:, None])
        best = alike.max(1, keepdims=True, initial=0)
        best[best < wanted.shortest] = -1
        fits = alike == best
        if len(self._ends) > 1:
            fits &= fits.cumsum(1, dtype=np.int32) <= most
        matches = np.flatnonzero(fits)
        places = self._places.take(index.ravel().take(matches)).astype(np.int64)
        following = places[:, None] + np.arange(wanted.length)
        tokens = self._tokens.take(following, mode="clip").astype(np.int64)  # none is the last
        ends = tokens == self.packing.vocabulary
        ended = np.flatnonzero(ends.any(1))
        tokens[ended] = cut_at_ends(np.where(ends[ended], NO_TOKEN, tokens[ended]))
        return continuation_trees(tokens, matches // index.shape[1], len(texts), wanted)

    def _queries(self, texts: Tokens, lengths: Tokens, reach: int) -> Tokens:
        """The last tokens of each text `[R, T]`, the nearest first, at least two keys of them."""
        width = max(reach, 2 * self.packing.tokens)
        columns = lengths[:, None] - 1 - np.arange(width)
        taken: Tokens = texts[np.arange(len(texts))[:, None], np.maximum(columns, 0)]
        taken[columns < 0] = self.packing.vocabulary
        return taken

    def _neighbours(self, queries: Tokens, most: int, reach: int) -> tuple[Tokens, Tokens]:
        """Indices of the places next to the queries in the order, and the tokens both share."""
        packed, rows = self.packing.tokens, len(queries)
        near, far = self.packing.keys(queries[:, : 2 * packed].reshape(rows, 2, packed)).T
        starts, ends = self._bounds
        at = self._insertions(near, far).T[:, :, None]
        at = at + np.arange(-(most // 2), most - most // 2)
        index = np.minimum(np.maximum(at, starts[:, None]), ends[:, None] - 1)
        alike = self.packing.alike(self._keys.take(index), near[:, None, None])
        alike *= index == at
        index, alike = index.reshape(rows, -1), alike.reshape(rows, -1)
        self._count_further(queries, index, alike, reach)
        return index, alike

    def _insertions(self, near: Keys, far: Keys) -> Tokens:
        """Index of each query in the order of each shard, `[shards, R]`, within a few places.

        Args:
            near: `[R]`, keys of the nearest tokens.
            far: `[R]`, keys of those beyond.
        """
        order = near.argsort()  # so that one search begins where the last one ended
        asked = np.repeat(near.take(order), 2)
        asked[1::2] += np.uint64(1)
        bounds = np.empty((len(self._ends), len(near), 2), dtype=np.int64)
        for shard, (start, end) in enumerate(self._bounds.T.tolist()):
            bounds[shard, order] = start + self._keys[start:end].searchsorted(asked).reshape(-1, 2)
        low, high = bounds.reshape(-1, 2).T
        insertions, rows = low.copy(), np.flatnonzero(high - low > _NEAR)  # many places are alike
        low, wide, far = low.take(rows), (high - low).take(rows), far.take(rows % len(near))
        while len(rows):
            parts = low[:, None] + wide[:, None] * _PARTS // _PROBES
            keys = self._far_keys(self._places.take(parts[:, 1:-1]))
            below = (keys < far[:, None]).sum(1)
            at = np.arange(0, parts.size, parts.shape[1]) + below
            low, high = parts.take(at) + (below > 0), parts.take(at + 1)
            insertions[rows] = (low + high) // 2
            wide = high - low
            more = np.flatnonzero(wide > _NEAR)
            rows, low, wide, far = rows[more], low[more], wide[more], far[more]
        return insertions.reshape(len(self._ends), -1)

    def _far_keys(self, places: NDArray[np.uint32]) -> Keys:
        """Second keys of places `[...]`."""
        packed = self.packing.tokens
        return self.packing.keys(self._before(places, packed, 2 * packed))

    def _before(self, places: NDArray[np.uint32], first: int, last: int) -> NDArray[Any]:
        """Tokens `[..., last - first]` that stand `first + 1` to `last` before places `[...]`."""
        columns = places.astype(np.int64)[..., None] - np.arange(first + 1, last + 1)
        tokens: NDArray[Any] = self._tokens.take(columns, mode="clip")
        if places.min() < last:
            tokens[columns < 0] = self.packing.vocabulary
        return tokens

    def _count_further(self, queries: Tokens, index: Tokens, alike: Tokens, reach: int) -> None:
        """Add to the counts what lies beyond the first key, for places that agree in all of it."""
        packed = self.packing.tokens
        whole = np.flatnonzero(alike == packed)
        if reach <= packed or not len(whole):
            return
        before = self._before(self._places.take(index.ravel().take(whole)), packed, reach)
        asked = queries[:, packed:reach].take(whole // index.shape[1], axis=0)
        differs = np.ones((len(whole), reach - packed + 1), dtype=np.bool_)
        np.not_equal(before, asked, out=differs[:, :-1])
        alike.ravel()[whole] += differs.argmax(1)


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A file as a read-only array that stays on disk."""
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


SOURCE = Datastore
