"""What the target accepts of its own drafts with chunks of its cache that are retrieved.

Every place of a text is drafted from, through a small cache of its own that is filled as in a
round: from the text before the root, by the query of the token before it. So it is in the first
round after a prompt; in later ones the query is as many tokens older as were just accepted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.measure.acceptance.own_drafts import TeacherText
from specplan.runtime.models.kv_cache import CacheWriter, KVCache, summed_by_head
from specplan.runtime.models.retrieval import retrieve

TOGETHER = 8
"""Places whose small caches are held, and drafted from, at once."""


class RetrievingText(TeacherText):
    """A text along which the target judges its own drafts; see `TeacherText`."""

    _cache: _AskingCache

    def _new_cache(self, capacity: int) -> KVCache:
        made = super()._new_cache(capacity)
        return _AskingCache(made.keys, made.values, made.positions)

    @torch.inference_mode()
    def retrieved_lengths(self, budget: int, chunk: int, most: int | None = None) -> list[int]:
        """Accepted tokens of a chain from every place; see `TeacherText.lengths`.

        Args:
            budget: tokens that the draft reads of the text before the root.
            chunk: tokens of a chunk.
            most: tokens that are drafted; default and limit the text's own.
        """
        found, most = [0] * self.places, most or self.most
        for first in range(0, self.places, TOGETHER):
            group = list(range(first, min(first + TOGETHER, self.places)))
            small, held = self._small(group, budget, chunk, most)
            alive = group
            for depth in range(most):
                alive = [place for place in alive if place + depth < self.places]
                if not alive:
                    break
                rows = self._rows(small, held, group, depth)[[place - first for place in alive]]
                judged = self._judge(rows, alive, depth)
                alive = [place for place, kept in zip(alive, judged, strict=True) if kept]
                for place in alive:
                    found[place] += 1
        return found

    def _small(
        self, places: list[int], budget: int, chunk: int, most: int
    ) -> tuple[KVCache, Tensor]:
        """A small cache for each place, and how many tokens each holds, int64 `[W, 1]`."""
        before = [self.start - 1 + place for place in places]
        whole = KVCache(self._cache.keys, self._cache.values, self._cache.positions)
        asking = [max(length - 1, 0) for length in before]
        whole.queries = [asked[asking] for asked in self._cache.asked]
        small = self.model.new_cache(len(places), min(budget, max(before)) + most)
        gone = retrieve(small, whole, before, budget, chunk)
        held = [length - left for length, left in zip(before, gone, strict=True)]
        return small, torch.tensor(held, device=self.text.device)[:, None]

    def _rows(self, small: KVCache, held: Tensor, places: list[int], depth: int) -> Tensor:
        """Logits `[W, V]` of the drafts at some places, `depth` tokens below the root."""
        roots = torch.tensor(places, device=held.device)[:, None] + self.start - 1
        positions = (roots + depth).clamp(max=len(self.text) - 1)
        slots = held + depth
        mask = torch.arange(int(slots.max()) + 1, device=held.device) <= slots[:, :, None]
        hidden = self.model.hidden(self.text[positions], positions, slots, mask, small)
        return self.model.logits(hidden)[:, 0]


class _AskingCache(KVCache):
    """A cache of one row that keeps the queries of all tokens of its first pass.

    Attributes:
        asked: per layer, `[T, H_kv, head_dim]`, as `KVCache.queries` are.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], positions: Tensor) -> None:
        super().__init__(keys, values, positions)
        self.asked: list[Tensor] = []

    def writer(self, positions: Tensor, slots: Tensor, used: int) -> CacheWriter:
        """See `KVCache.writer`."""
        return _AskingWriter(self, positions, slots, used)


class _AskingWriter(CacheWriter):
    """One pass over such a cache."""

    cache: _AskingCache

    def note(self, queries: Tensor, layer_idx: int) -> None:
        """See `CacheWriter.note`; keeps those of all tokens."""
        if layer_idx == len(self.cache.asked):
            heads = self.cache.keys[layer_idx].shape[1]
            self.cache.asked.append(summed_by_head(queries, heads)[0].transpose(0, 1))
