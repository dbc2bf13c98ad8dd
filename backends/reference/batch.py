"""The state of a batch between rounds: texts, lengths, caches, what is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

import torch
from torch import Tensor

from specplan.backends.reference.caches import CacheUse, Kept, TrackUse
from specplan.backends.reference.carrying import first_value
from specplan.backends.reference.values import Held
from specplan.cost_models.refreshing import chunk_of
from specplan.ir.plan import CacheState, StateDeclaration, TrackState, ValueState
from specplan.ir.tables import BUILTIN
from specplan.ir.values import State
from specplan.runtime.executable import Observer
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings
from specplan.runtime.sources.use import SourceUse


class Batch:
    """Requests that run together.

    Attributes:
        requests: one per row.
        lengths: tokens of text per row, prompt included.
        text: int64 `[B, S + 1]`, padded with 0; the last column is never part of a text.
        done: rows that want no more tokens.
        starts: tokens of text per row when the round began.
        caches: by the name of the cache state.
        tracks: by the name of the track state.
        cache_models: what the plan calls the model of each cache.
        sources: by the name of the source state.
        values: by the name of the value state, what the last round left.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        models: Mapping[str, CausalModel],
        states: Sequence[StateDeclaration],
        sources: Mapping[str, SourceUse],
        speculative: int,
        capacity: int | None,
    ) -> None:
        self.requests = tuple(requests)
        self.device = next(iter(models.values())).device
        self.settings = SamplingSettings.of(self.requests, self.device)
        self.seeds = [request.seed for request in self.requests]
        self.lengths = [len(request.prompt_tokens) for request in self.requests]
        self.starts = list(self.lengths)
        self.limits = [len(r.prompt_tokens) + r.max_new_tokens for r in self.requests]
        self.stops = [frozenset(request.stop_tokens) for request in self.requests]
        self.done = [
            length >= limit for length, limit in zip(self.lengths, self.limits, strict=True)
        ]
        slots = max(capacity or 0, max(self.limits)) + speculative
        self.text = torch.zeros(self.size, slots + 1, dtype=torch.int64, device=self.device)
        for row, request in enumerate(self.requests):
            self.text[row, : self.lengths[row]] = torch.tensor(request.prompt_tokens)
        self.caches: dict[str, CacheUse] = {}
        self.tracks: dict[str, TrackUse] = {}
        self.cache_models: dict[str, str] = {}
        self.values: dict[str, Held] = {}
        caches = [state for state in states if isinstance(state, CacheState)]
        asked = {state.view for state in caches if state.retrieves}
        for state in sorted(states, key=_is_view):
            if isinstance(state, CacheState):
                model = models[state.model]
                kept, of = _kept(state), self.caches.get(state.view or State(""))
                room = slots if kept is None else kept.budget + kept.chunk + speculative
                store = model.new_cache(self.size, min(slots, room), state.name in asked)
                self.caches[state.name] = CacheUse(model, store, kept, of)
                self.cache_models[state.name] = state.model
            elif isinstance(state, TrackState):
                model = models[state.model]
                shape = (self.size, slots + 1, model.hidden_size)
                held = torch.zeros(shape, dtype=model.dtype, device=self.device)
                self.tracks[state.name] = TrackUse(held)
            elif isinstance(state, ValueState):
                self.values[state.name] = first_value(state, self.size, self.device)
        self.sources = dict(sources)

    @property
    def size(self) -> int:
        """Rows."""
        return len(self.requests)

    def emitted(self, row: int) -> bool:
        """Whether a row's text grew in this round."""
        return self.lengths[row] > self.starts[row]

    def begin_round(self) -> None:
        """Forget the drafted nodes of the last round."""
        self.starts = list(self.lengths)
        for cache in self.caches.values():
            cache.begin_round()
        for track in self.tracks.values():
            track.held = set()

    def prefill(self, observer: Observer | None) -> None:
        """Run the prompts, all but the last token, through every model that keeps a cache."""
        for name, cache in self.caches.items():
            if cache.of is not None:
                cache.refresh()
                continue
            start = perf_counter()
            self.catch_up(cache, 1)
            if observer is not None:
                seconds = perf_counter() - start
                longest = max(self.lengths)
                observer("prefill", self.cache_models[name], self.size, longest, 0, seconds)

    def catch_up(self, cache: CacheUse, most_pending: int) -> None:
        """Run text through a model until at most `most_pending` tokens of it are pending.

        This is prefill, and the way back for a drafter that a schedule had switched off.
        """
        goals = [length - most_pending for length in self.lengths]
        chunk = MOST_CHUNK if cache.kept is None else cache.kept.chunk
        while any(done < goal for done, goal in zip(cache.lengths, goals, strict=True)):
            width = min(
                chunk, max(goal - done for done, goal in zip(cache.lengths, goals, strict=True))
            )
            self._write_text(cache, goals, width)

    def _write_text(self, cache: CacheUse, goals: list[int], width: int) -> None:
        starts = torch.tensor(cache.lengths, device=self.device)
        positions = starts[:, None] + torch.arange(width, device=self.device)
        live = positions < torch.tensor(goals, device=self.device)[:, None]
        own = positions - cache.shift
        slots = own.where(live, cache.store.trash)
        tokens = self.text.gather(1, positions.clamp(max=self.text.shape[1] - 1)) * live
        last = int(own[live].max()) + 1
        mask = torch.arange(last, device=self.device) <= own[:, :, None]
        latest = live.sum(1) - 1
        cache.model.hidden(tokens, positions, slots, mask, cache.store, latest=latest)
        cache.lengths = [
            max(done, min(done + width, goal))
            for done, goal in zip(cache.lengths, goals, strict=True)
        ]
        cache.forget()

    def append(self, row: int, tokens: list[int]) -> list[int]:
        """Append tokens to a row's text, cut after a stop token and at the limit.

        Returns:
            What was appended; empty for a row that is done.
        """
        if self.done[row]:
            return []
        kept: list[int] = []
        for token in tokens[: self.limits[row] - self.lengths[row]]:
            kept.append(token)
            if token in self.stops[row]:
                self.done[row] = True
                break
        start = self.lengths[row]
        self.text[row, start : start + len(kept)] = torch.tensor(kept, device=self.device)
        self.lengths[row] = start + len(kept)
        self.done[row] = self.done[row] or self.lengths[row] >= self.limits[row]
        return kept

    def length_tensor(self) -> Tensor:
        """Text lengths as int64 `[B]`."""
        return torch.tensor(self.lengths, device=self.device)


MOST_CHUNK = 512
"""Text that is run in one pass at most."""


def _kept(state: CacheState) -> Kept | None:
    """What a cache keeps of the text; None for all of it."""
    if state.budget is None or state.policy is None:
        return None
    if state.retrieves:
        chunk = chunk_of(state)
        return Kept(state.budget, chunk, 1, retrieved=chunk)
    declared = BUILTIN.find("policy", state.policy.name)
    assert declared is not None
    sink = int(declared.arguments(state.policy)["sink"])
    chunk = 1 if state.view is not None else min(MOST_CHUNK, state.budget)
    return Kept(state.budget, min(sink, state.budget), chunk)


def _is_view(state: StateDeclaration) -> bool:
    """Whether it is a copy of a cache, which is made first."""
    return isinstance(state, CacheState) and state.view is not None
