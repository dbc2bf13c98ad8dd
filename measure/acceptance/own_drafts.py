"""What the target accepts of drafts that it makes itself with fewer blocks or less of its cache.

A pass without blocks writes keys and values that the target itself would not, and a small cache is
filled when a round begins. Where a round began therefore matters, and every place of the text is
drafted from anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from specplan.ir.blocks import Skips
from specplan.measure.acceptance.teacher import (
    SinkWindow,
    allowed_along,
    greedy_ranks,
    sampled_ranks,
    text_states,
)
from specplan.runtime.models.attention import summed_by_head
from specplan.runtime.models.cache_parts.by_head import Heads, StreamingSlots, hidden_by_head
from specplan.runtime.models.cache_parts.observed import ObservedPrompts, Window
from specplan.runtime.models.cache_parts.retrieval import retrieve
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import CacheWriter, KVCache
from specplan.runtime.requests import Request

TOGETHER = 8
"""Places whose small caches are in memory, and drafted from, at once."""


class TeacherText:
    """A text along which the target judges its own drafts, with the target's cache of it.

    A round may start at every place of the output: its draft attends to the target's exact keys
    and values of the text before the root, and to its own from the root on. Drafts of the same
    depth run together at all places where the draft was accepted so far.

    Args:
        model: the target.
        request: its prompt and sampling settings.
        output: the target's own output.
        most: most tokens of a draft.
    """

    @torch.inference_mode()
    def __init__(
        self, model: CausalModel, request: Request, output: Sequence[int], most: int
    ) -> None:
        self.model, self.request, self.output, self.most = model, request, output, most
        self.start, self.places = len(request.prompt_tokens), len(output)
        text = [*request.prompt_tokens, *output]
        self.text = torch.tensor(text, device=model.device)
        self._cache = self._new_cache(len(text) + most * self.places)
        self._states = text_states(model, text, self.start, cache=self._cache, request=request)

    def _new_cache(self, capacity: int) -> KVCache:
        """The cache for the text and its drafts."""
        return self.model.new_cache(1, capacity)

    @torch.inference_mode()
    def lengths(
        self,
        skips: Skips,
        most: int | None = None,
        window: SinkWindow | None = None,
        retrieval: Heads = (),
    ) -> list[int]:
        """Accepted tokens of a chain from every place, drafted without some blocks or most text.

        Args:
            skips: the blocks.
            most: most tokens of a draft; the text's own by default, which is also the limit.
            window: tokens of the text before the root that the draft reads; None for all.
            retrieval: heads that read all of them in any case.

        Returns:
            One number per place; chains end with the text at the latest.
        """
        draft = partial(self._draft, skips=skips, window=window, retrieval=retrieval)
        return self._accepted(range(self.places), most or self.most, draft)

    def _accepted(
        self,
        places: Sequence[int],
        most: int,
        draft: Callable[[list[int], int], Tensor],
    ) -> list[int]:
        """Accepted tokens from some places; `draft` gives logits of places at a depth."""
        counts, alive = dict.fromkeys(places, 0), list(places)
        for depth in range(most):
            alive = [place for place in alive if place + depth < self.places]
            if not alive:
                break
            judged = self._judge(draft(alive, depth), alive, depth)
            alive = [place for place, accepted in zip(alive, judged, strict=True) if accepted]
            for place in alive:
                counts[place] += 1
        return list(counts.values())

    def _draft(
        self,
        places: list[int],
        depth: int,
        skips: Skips,
        window: SinkWindow | None,
        retrieval: Heads,
    ) -> Tensor:
        """Logits `[W, V]` of the drafts at some places, `depth` tokens below the root."""
        device, size = self.model.device, len(self.text)
        place = torch.tensor(places, device=device)
        positions = self.start - 1 + place + depth
        own = size + torch.arange(depth + 1, device=device) * self.places + place[:, None]
        keys = torch.arange(size + (depth + 1) * self.places, device=device)
        before = self.start - 1 + place[:, None]
        mask = small = (keys < before).scatter(1, own, True)
        if window is not None:
            budget, sinks = window
            small = mask & ((keys < sinks) | (keys >= before - budget + sinks))
        given = self.text[positions][None], positions[None], own[None, :, -1]
        if retrieval:
            streaming = StreamingSlots(seen=small[None])
            hidden = hidden_by_head(
                self.model, retrieval, streaming, *given, mask[None], self._cache, skips=skips
            )
        else:
            hidden = self.model.hidden(*given, small[None], self._cache, skips=skips)
        return self.model.logits(hidden)[0]

    def _judge(self, logits: Tensor, places: list[int], depth: int) -> list[bool]:
        """Whether the token that each place drafts at this depth is accepted."""
        at = [place + depth for place in places]
        logits = allowed_along(self.request, self.output, logits, at)
        if self.request.temperature == 0.0:
            wanted = self.text[self.start :][at].tolist()
            return [rank == 0 for rank in greedy_ranks(logits, wanted, 1)]
        target = self.model.logits(self._states[None, at])[0]
        target = allowed_along(self.request, self.output, target, at)
        numbers = [place * self.most + depth for place in places]
        return [rank == 0 for rank in sampled_ranks(target, logits, self.request, 1, numbers)]


class RetrievingText(TeacherText):
    """A text whose drafts read tokens of the cache that heads choose; see `TeacherText`.

    Every place is drafted from through a small cache of its own that is filled as in a round, from
    the text before the root. Chunks are retrieved by the query of the token before it. This is
    exact for the first round after a prompt; in later rounds the query is older by as many tokens
    as were just accepted.
    """

    _cache: _QueryCache

    def _new_cache(self, capacity: int) -> KVCache:
        cache = super()._new_cache(capacity)
        return _QueryCache(cache.keys, cache.values, cache.positions)

    @torch.inference_mode()
    def retrieved_lengths(self, budget: int, chunk: int) -> list[int]:
        """Accepted tokens of a chain from every place; see `TeacherText.lengths`.

        Args:
            budget: tokens that the draft reads of the text before the root.
            chunk: tokens of a chunk.
        """

        def fill(small: KVCache, whole: KVCache, before: list[int]) -> list[int]:
            last = [max(length - 1, 0) for length in before]
            whole.queries = [queries[last] for queries in self._cache.all_queries]
            return retrieve(small, whole, before, budget, chunk)

        return self._small_lengths(budget, fill)

    @torch.inference_mode()
    def observed_lengths(self, budget: int, window: Window) -> list[int]:
        """The same where the last tokens of the prompt vote for what is read, as in every round.

        Args:
            budget: see `retrieved_lengths`.
            window: how they vote.
        """
        prompt = self.request.prompt_tokens[:-1]
        observed = ObservedPrompts(self.model, [prompt], window)

        def fill(small: KVCache, whole: KVCache, before: list[int]) -> list[int]:
            return observed.refresh(small, whole, before, budget)

        return self._small_lengths(budget, fill)

    def _small_lengths(self, budget: int, fill: Fill) -> list[int]:
        """Accepted tokens from every place, drafted through small caches."""
        counts: list[int] = []
        for first in range(0, self.places, TOGETHER):
            group = list(range(first, min(first + TOGETHER, self.places)))
            small, lengths = self._small(group, budget, fill)
            draft = partial(self._small_draft, small=small, lengths=lengths, group=group)
            counts += self._accepted(group, self.most, draft)
        return counts

    def _small(self, places: list[int], budget: int, fill: Fill) -> tuple[KVCache, Tensor]:
        """A small cache for each place, and the tokens in each, int64 `[W, 1]`."""
        before = [self.start - 1 + place for place in places]
        whole = KVCache(self._cache.keys, self._cache.values, self._cache.positions)
        small = self.model.new_cache(len(places), min(budget, max(before)) + self.most)
        omitted = fill(small, whole, before)
        lengths = [length - part for length, part in zip(before, omitted, strict=True)]
        return small, torch.tensor(lengths, device=self.text.device)[:, None]

    def _small_draft(
        self, places: list[int], depth: int, small: KVCache, lengths: Tensor, group: list[int]
    ) -> Tensor:
        """Logits `[W, V]` of the drafts at some places of a group, through its small caches."""
        roots = torch.tensor(group, device=lengths.device)[:, None] + self.start - 1
        positions = (roots + depth).clamp(max=len(self.text) - 1)
        slots = lengths + depth
        mask = torch.arange(int(slots.max()) + 1, device=lengths.device) <= slots[:, :, None]
        hidden = self.model.hidden(self.text[positions], positions, slots, mask, small)
        return self.model.logits(hidden)[[place - group[0] for place in places], 0]


Fill: TypeAlias = Callable[[KVCache, KVCache, list[int]], list[int]]
"""Fills small caches from the whole one, given the tokens before each root; omitted tokens."""


class _QueryCache(KVCache):
    """A cache of one row that stores the queries of all tokens of its first pass.

    Attributes:
        all_queries: per layer, `[T, H_kv, head_dim]`, as `KVCache.queries` are.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], positions: Tensor) -> None:
        super().__init__(keys, values, positions)
        self.all_queries: list[Tensor] = []

    def writer(self, positions: Tensor, slots: Tensor, used: int) -> CacheWriter:
        """See `KVCache.writer`."""
        return _QueryWriter(self, positions, slots, used)


class _QueryWriter(CacheWriter):
    """One pass over such a cache."""

    cache: _QueryCache

    def note(self, queries: Tensor, layer_idx: int) -> None:
        """See `CacheWriter.note`; stores those of all tokens."""
        if layer_idx == len(self.cache.all_queries):
            heads = self.cache.keys[layer_idx].shape[1]
            self.cache.all_queries.append(summed_by_head(queries, heads)[0].transpose(0, 1))
