"""Source `trees`: ready trees of what follows the commonest runs of tokens of a corpus.

CREST (Ho et al. 2024, arXiv 2408.04678): instead of a corpus and its order, a dictionary from
n-grams to draft trees, each merged once from all continuations of its n-gram; it holds the
commonest n-grams, among equals the shorter ones. A lookup finds the longest end of the text that is
there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import UsageError
from specplan.ir.files import read_json, write_atomic
from specplan.ir.plan import SourceState
from specplan.ir.tables.sources.trees import FILE
from specplan.runtime.sources.continuations import continuation_trees, cut_at_ends
from specplan.runtime.sources.datastore import ABOUT, Packing, stored_folder
from specplan.runtime.sources.source import NO_TOKEN, ROOT, Source, SourceDrafts, Tokens, Wanted

ORDER, LENGTH, NODES = 3, 8, 64
"""Longest n-gram, and depth and size of a stored tree, by default."""
_ENTRY_BYTES = 300
"""Of CPython: a place of the dictionary, its key and its number."""
_TOGETHER = 1 << 18
"""Continuations that are merged at once, or those of one entry."""


class Trees(Source):
    """A dictionary from runs of tokens to draft trees.

    Args:
        folder: of a datastore that was built with trees.
        order: tokens of a run at most.

    Raises:
        UsageError: it has none.
    """

    merges: ClassVar[bool] = True

    def __init__(self, folder: Path, order: int) -> None:
        super().__init__()
        if not (folder / FILE).is_file():
            raise UsageError(
                "the datastore has no ready trees",
                where=str(folder),
                remedy="Make them with `specplan datastore build --trees N`.",
            )
        with np.load(folder / FILE, allow_pickle=False) as stored:
            runs, self._tokens = stored["runs"], stored["tokens"]
            self._parents, self._sizes = stored["parents"], stored["sizes"]
        self.order = min(order, runs.shape[1])
        self._entries = {
            tuple(token for token in run if token != NO_TOKEN): number
            for number, run in enumerate(runs.tolist())
        }

    @classmethod
    def declared(cls, state: SourceState, sizes: Mapping[str, int], vocabulary: int) -> Trees:
        """The trees in the folder that the plan names."""
        return cls(stored_folder(state, "ready trees are"), sizes["order"])

    @property
    def most_bytes(self) -> float:
        """All trees and the dictionary."""
        arrays = self._tokens.nbytes + self._parents.nbytes + self._sizes.nbytes
        return float(arrays + _ENTRY_BYTES * len(self._entries))

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """The tree of the longest end of each text that has one."""
        drafts = SourceDrafts.nothing(len(texts), wanted)
        for row, end in enumerate(lengths.tolist()):
            longest = min(wanted.longest, self.order, end)
            for size in range(longest, max(wanted.shortest, 1) - 1, -1):
                entry = self._entries.get(tuple(texts[row, end - size : end].tolist()))
                if entry is not None:
                    self._put(drafts, row, entry, wanted)
                    break
        return drafts

    def _put(self, drafts: SourceDrafts, row: int, entry: int, wanted: Wanted) -> None:
        """The heaviest nodes of an entry's tree that are within the limits."""
        merged, size = wanted.nodes is not None, int(self._sizes[entry])
        slots, depths, children = {ROOT: ROOT}, {ROOT: 0}, Counter[int]()
        nodes = zip(
            self._tokens[entry, :size].tolist(), self._parents[entry, :size].tolist(), strict=True
        )
        for node, (token, parent) in enumerate(nodes):
            most = wanted.children if merged or parent == ROOT else 1
            if parent not in slots or depths[parent] == wanted.length or children[parent] == most:
                continue
            slot = len(slots) - 1
            if not merged:  # side by side, each continuation has its own slots
                begins = children[ROOT] * wanted.length
                slot = begins if parent == ROOT else slots[parent] + 1
            elif slot == wanted.size:
                break
            children[parent] += 1
            slots[node], depths[node] = slot, depths[parent] + 1
            drafts.put(row, slot, token, slots[parent])


def build_trees(
    folder: Path, entries: int, *, order: int = ORDER, length: int = LENGTH, nodes: int = NODES
) -> int:
    """Make the ready trees of a finished datastore.

    Args:
        folder: of the datastore; gets one more file.
        entries: n-grams that are kept at most, the commonest.
        order: tokens of the longest n-gram.
        length: depth of a tree at most.
        nodes: of a tree at most, the commonest.

    Returns:
        Entries made.

    Raises:
        UsageError: the datastore is unfinished, or the n-grams are too long for its vocabulary.
    """
    about = read_json(folder / ABOUT, "datastore")
    packing = Packing(about["vocabulary"])
    if order * packing.bits > 63:
        raise UsageError(
            f"n-grams of {order} tokens do not fit in keys", remedy=f"Take {63 // packing.bits}."
        )
    tokens = np.fromfile(folder / "tokens.bin", packing.dtype).astype(np.int64)
    counted = [_counted(tokens, packing, size) for size in range(1, order + 1)]
    sizes = np.repeat(np.arange(1, order + 1), [len(counts) for _, _, counts in counted])
    every = np.concatenate([counts for _, _, counts in counted])
    commonest = np.sort(np.lexsort((sizes, -every))[:entries])
    parts: list[tuple[NDArray[Any], ...]] = []
    first = 0
    for size, (places, inverse, counts) in enumerate(counted, start=1):
        own = commonest[(commonest >= first) & (commonest < first + len(counts))] - first
        parts += _trees(tokens, packing, (places, inverse, own), (size, order), (length, nodes))
        first += len(counts)
    stored, tokens_of, parents, filled = (np.concatenate(one) for one in zip(*parts, strict=True))
    data = BytesIO()
    np.savez(data, runs=stored, tokens=tokens_of, parents=parents, sizes=filled)
    write_atomic(folder / FILE, data.getvalue())
    return len(filled)


def _counted(tokens: Tokens, packing: Packing, size: int) -> tuple[Tokens, Tokens, Tokens]:
    """Places after runs of so many tokens, the number of the run of each, and counts of runs.

    No run goes across the end of a document, and something follows it.
    """
    keys = np.zeros(max(0, len(tokens) - size), dtype=np.int64)
    inside = np.ones(len(keys), dtype=np.bool_)
    for back in range(size + 1):  # the last is the token that follows
        part = tokens[back : back + len(keys)]
        inside &= part != packing.vocabulary
        if back < size:
            keys = (keys << packing.bits) | part
    starts = np.flatnonzero(inside)
    _, inverse, counts = np.unique(keys[starts], return_inverse=True, return_counts=True)
    return starts + size, inverse, counts


def _trees(
    tokens: Tokens,
    packing: Packing,
    runs: tuple[Tokens, Tokens, Tokens],
    sizes: tuple[int, int],
    limits: tuple[int, int],
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Runs, tokens, parents and sizes of the trees of one size of runs, part by part."""
    (places, inverse, commonest), (size, order), (length, nodes) = runs, sizes, limits
    number = np.full(int(inverse.max(initial=-1)) + 1, ROOT)
    number[commonest] = np.arange(len(commonest))
    entry = number[inverse]
    places, entry = places[entry >= 0], entry[entry >= 0]
    by_entry = np.argsort(entry, kind="stable")
    places, entry = places[by_entry], entry[by_entry]
    bounds = np.searchsorted(entry, np.arange(len(commonest) + 1))
    first = 0
    while first < len(commonest):
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + _TOGETHER, "right")) - 1)
        here = places[bounds[first] : bounds[last]]
        following = tokens.take(here[:, None] + np.arange(length), mode="clip")
        following = cut_at_ends(np.where(following == packing.vocabulary, NO_TOKEN, following))
        wanted = Wanted(children=nodes, length=length, nodes=nodes)
        texts = entry[bounds[first] : bounds[last]] - first
        drafts = continuation_trees(following, texts, last - first, wanted)
        run_rows = np.full((last - first, order), NO_TOKEN, dtype=np.int32)
        begins = places[bounds[first:last]]
        run_rows[:, order - size :] = tokens[begins[:, None] + np.arange(-size, 0)]
        parents = drafts.parents.astype(np.int16)
        yield run_rows, drafts.tokens.astype(np.int32), parents, drafts.live.sum(1).astype(np.int16)
        first = last


SOURCE = Trees
