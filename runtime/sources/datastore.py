"""Source `datastore`: what followed the end of a text in a corpus, memory mapped.

REST (He et al. 2023, arXiv 2311.08252): the longest end of the text that occurs in the corpus is
looked for; what followed its occurrences is merged into a tree of the commonest tokens. Other than
there, every place of the corpus is sorted by the tokens *before* it, the nearest first, so that one
binary search finds the longest match of any length, and the occurrences beside it are those whose
context is most like the text's. The sort goes as far back as two keys of 64 bits hold; matches that
are longer are told apart among the occurrences beside it.
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
from specplan.runtime.sources.continuations import continuation_trees
from specplan.runtime.sources.source import NO_TOKEN, Flags, Found, Source, Tokens, Wanted

SCHEMA_VERSION = 1
ABOUT = "datastore.json"
_NEAR = 8
"""So near to its place a query need not be brought: the places beside are looked at anyhow."""
_PROBES = 8
"""Parts into which the places between two bounds are cut, to go on in one of them."""
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
    def shifts(self) -> Keys:
        """Bits below each token of a key, those of the nearest token first."""
        return np.arange(self.tokens - 1, -1, -1, dtype=np.uint64) * np.uint64(self.bits)

    def keys(self, contexts: NDArray[np.integer]) -> Keys:
        """Keys `[...]` of contexts `[..., tokens]`, the nearest token first."""
        found: Keys = np.bitwise_or.reduce(contexts.astype(np.uint64) << self.shifts, axis=-1)
        return found

    def alike(self, one: Keys, other: Keys) -> Tokens:
        """How many tokens two keys have in common, from the nearest on."""
        differs = one ^ other
        found = np.zeros(differs.shape, dtype=np.int64)
        for shift in self.shifts:
            found += (differs >> shift) == 0
        return found


class Datastore(Source):
    """A corpus and its places, sorted shard by shard.

    Args:
        folder: made by `specplan datastore build`.

    Raises:
        UsageError: there is none, or it was not finished.
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
        self._tokens = _mapped(folder / "tokens.bin", self.packing.dtype)
        self._keys = _mapped(folder / "keys.bin", np.dtype("<u8"))
        self._places = _mapped(folder / "places.bin", np.dtype("<u4"))

    @classmethod
    def declared(cls, state: SourceState, sizes: Mapping[str, int], vocabulary: int) -> Datastore:
        """What was built in the folder that the plan names."""
        if state.path is None:
            raise UsageError(
                "a datastore is read from a folder",
                where=f"state @{state.name}",
                remedy="Declare it with path= and scope=read_only.",
            )
        return cls(Path(state.path), vocabulary, sizes["order"])

    @property
    def most_bytes(self) -> float:
        """Of the process's own in 64 lookups at once; the files are mapped."""
        return _LOOKUPS + _SHARD_LOOKUPS * len(self._ends)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> Found:
        """The continuations of the places whose context is most like each text's end."""
        reach = min(wanted.longest, self.order)
        queries = self._queries(texts, lengths, reach)
        most = wanted.children if wanted.nodes is not None else max(16, wanted.children)
        places, alike = self._beside(queries, most, reach)
        alike = np.minimum(alike, np.minimum(lengths, reach)[:, None])
        best = alike.max(1, keepdims=True, initial=0)
        fits = (alike == best) & (best >= wanted.shortest)
        fits &= np.cumsum(fits, axis=1) <= most
        texts_found, columns = np.nonzero(fits)
        following = places[texts_found, columns][:, None] + np.arange(wanted.length)
        tokens = self._tokens.take(following, mode="clip").astype(np.int64)
        none = (following >= len(self._tokens)) | (tokens == self.packing.vocabulary)
        for step in range(1, wanted.length):
            none[:, step] |= none[:, step - 1]
        tokens[none] = NO_TOKEN
        return continuation_trees(tokens, texts_found, len(texts), wanted)

    def _queries(self, texts: Tokens, lengths: Tokens, reach: int) -> Tokens:
        """The last tokens of each text `[R, T]`, the nearest first, at least two keys of them."""
        width = max(reach, 2 * self.packing.tokens)
        columns = lengths[:, None] - 1 - np.arange(width)
        taken = texts[np.arange(len(texts))[:, None], np.maximum(columns, 0)]
        return np.where(columns >= 0, taken, self.packing.vocabulary)

    def _beside(self, queries: Tokens, most: int, reach: int) -> tuple[Tokens, Tokens]:
        """Places beside the queries in the order, and the tokens that they have in common."""
        packed = self.packing.tokens
        near = self.packing.keys(queries[:, :packed])
        starts = np.array([0, *self._ends[:-1]])[:, None, None]
        ends = np.array(self._ends)[:, None, None]
        at = self._insertions(near, queries[:, packed : 2 * packed])[:, :, None]
        at = at + np.arange(-(most // 2), most - most // 2)
        inside = ((at >= starts) & (at < ends)).swapaxes(0, 1).reshape(len(near), -1)
        index = np.clip(at, starts, ends - 1).swapaxes(0, 1).reshape(len(near), -1)
        alike = self.packing.alike(self._keys.take(index), near[:, None])
        places = self._places.take(index).astype(np.int64)
        return places, np.where(inside, self._further(queries, places, alike, reach), 0)

    def _insertions(self, near: Keys, further: Tokens) -> Tokens:
        """Where each query stands in the order of each shard, `[shards, R]`, give or take a few.

        Args:
            near: `[R]`, keys of the nearest tokens.
            further: `[R, tokens]`, those beyond.
        """
        packed, far, start = self.packing.tokens, self.packing.keys(further), 0
        bounds = []
        for end in self._ends:
            keys = self._keys[start:end]
            first = np.searchsorted(keys, near)
            last, beyond = first.copy(), np.minimum(first + _NEAR, end - start - 1)
            (rows,) = np.nonzero(keys[beyond] == near)  # many places are alike
            last[rows] = np.searchsorted(keys, near[rows], "right")
            bounds.append([start + first, start + last])
            start = end
        low, high = np.array(bounds).swapaxes(0, 1).reshape(2, -1)
        wanted = np.tile(far, len(self._ends))
        while True:
            (rows,) = np.nonzero(high - low > _NEAR)
            if not len(rows):
                found: Tokens = (low + high) // 2
                return found.reshape(len(self._ends), -1)
            first, wide = low[rows, None], (high - low)[rows, None]
            probes = first + wide * np.arange(1, _PROBES) // _PROBES
            places = self._places.take(probes).astype(np.int64).ravel()
            keys = self.packing.keys(self._before(places, packed, 2 * packed))
            below = (keys.reshape(probes.shape) < wanted[rows, None]).sum(1, keepdims=True)
            low[rows] = (first + wide * below // _PROBES + (below > 0))[:, 0]
            high[rows] = (first + wide * (below + 1) // _PROBES)[:, 0]

    def _before(self, places: Tokens, first: int, last: int) -> Tokens:
        """Tokens `[Q, last - first]` that stand `first + 1` to `last` before places."""
        columns = places[:, None] - 1 - np.arange(first, last)
        return np.where(
            columns >= 0, self._tokens.take(columns, mode="clip"), self.packing.vocabulary
        ).astype(np.int64)

    def _further(self, queries: Tokens, places: Tokens, alike: Tokens, reach: int) -> Tokens:
        """Counts beyond the first key, for places that agree in all of it."""
        packed = self.packing.tokens
        rows, columns = np.nonzero(alike == packed)
        if reach <= packed or not len(rows):
            return alike
        before = self._before(places[rows, columns], packed, reach)
        same: Flags = np.logical_and.accumulate(before == queries[rows, packed:reach], axis=1)
        alike[rows, columns] += same.sum(1)
        return alike


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A file as a read-only array that stays on disk."""
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


SOURCE = Datastore
