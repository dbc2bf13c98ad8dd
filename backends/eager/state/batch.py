"""The state of a batch between rounds: texts and their keys, what is done, caches and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.caches import Cache, Retention
from specplan.backends.eager.state.first_values import exchanged_value, first_track, first_value
from specplan.backends.eager.state.grammars import Grammars
from specplan.backends.eager.state.rows import exchanged
from specplan.backends.eager.state.texts import Texts
from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.tensors.keys import FIRST_KEY, NO_KEY, key_after
from specplan.backends.ops.tensors.values import Tree
from specplan.cost_models.rounds.refreshing import chunk_of
from specplan.ir.plan import CacheState, Plan, TrackState, ValueState
from specplan.ir.tables.builtin import BUILTIN
from specplan.runtime.models.cache_parts.observed import ObservedPrompts
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings
from specplan.runtime.sources.registry import BatchSource

Models: TypeAlias = Mapping[str, Module]

MOST_CHUNK = 512
"""Text that is run in one pass at most."""


class Batch(Texts):
    """Requests that run together.

    Attributes:
        requests: one per row.
        lengths: tokens of text per row, prompt included.
        done: requests that want no more tokens.
        starts: tokens of text per row when the round began.
        caches: by the name of the cache state.
        sources: by the name of the source state.
        values: by the name of the value state, what the last round left.
        grammars: what outputs must follow; None where no request has a grammar.
        shared: tokens of the prompts that joined last which were copied from other rows.
    """

    shared = 0

    def __init__(
        self,
        requests: Sequence[Request],
        models: Mapping[str, Module],
        sources: Mapping[str, BatchSource],
        speculative: int,
        capacity: int | None,
    ) -> None:
        self.device = next(iter(models.values())).device
        self.requests: tuple[Request, ...] = ()
        self.lengths, self.starts, self.limits = list[int](), list[int](), list[int]()
        self.done = list[bool]()
        self._enter((), requests)
        self.speculative = speculative
        self.slots = max(capacity or 0, max(self.limits)) + speculative
        self._last_keys = list[int]()
        self._both = torch.zeros(2, 0, self.slots + 1, dtype=torch.int64, device=self.device)
        self._write_prompts(())
        self.caches: dict[str, Cache] = {}
        self.tracks: dict[str, Track] = {}
        self.values: dict[str, Tree | Tensor] = {}
        self.sources = dict(sources)
        self.grammars = Grammars.of(self.requests)

    def _enter(self, stay: Sequence[int], requests: Sequence[Request]) -> None:
        """Settings of the requests that stay, and of new ones behind them."""
        self.requests = (*(self.requests[row] for row in stay), *requests)
        self.settings = SamplingSettings.of(self.requests, self.device)
        self.seeds = [request.seed for request in self.requests]
        self.limits = [len(r.prompt_tokens) + r.max_new_tokens for r in self.requests]
        self.stops = [frozenset(request.stop_tokens) for request in self.requests]
        new = self.requests[len(stay) :]
        self.lengths = [self.lengths[row] for row in stay] + [len(r.prompt_tokens) for r in new]
        self.done = [self.done[row] for row in stay] + [r.max_new_tokens <= 0 for r in new]
        self.starts = list(self.lengths)

    def _write_prompts(self, stay: Sequence[int]) -> None:
        """Texts of the requests that stay, and prompts of those behind them."""
        new = self.requests[len(stay) :]
        text, keys = (exchanged(both, stay, len(new), NO_KEY) for both in self._both)
        text[len(stay) :] = 0
        self._both = torch.stack([text, keys])
        self.text, self.keys = self._both
        self._last_keys = [self._last_keys[row] for row in stay] + [FIRST_KEY] * len(new)
        for row, request in enumerate(new, len(stay)):
            self._write(row, 0, request.prompt_tokens)

    def exchange(
        self, stay: Sequence[int], requests: Sequence[Request], plan: Plan, models: Models
    ) -> None:
        """Keep some requests, and begin new ones behind them, between two rounds.

        Args:
            stay: rows, rising.
            requests: the new ones; their texts fit into the memory that the batch has.
            plan: what it keeps.
            models: by their roles.
        """
        alike = self._alike(requests)
        self._enter(stay, requests)
        self._write_prompts(stay)
        self.grammars = Grammars.exchanged(self.grammars, stay, self.requests)
        self._forget()
        copied = [
            cache.exchange(stay, self.lengths[len(stay) :], alike) for cache in self.caches.values()
        ]
        self.shared = sum(map(min, zip(*copied, strict=True)))
        for state in plan.states:
            if isinstance(state, TrackState):
                new = first_track(state, models[state.model], requests, self.slots)
                self.tracks[state.name].exchange(stay, new)
            elif isinstance(state, ValueState):
                self.values[state.name] = exchanged_value(
                    state, self.values[state.name], stay, len(requests)
                )

    def _alike(self, requests: Sequence[Request]) -> list[tuple[int, int]]:
        """For each new request the row whose text begins most as its prompt, and how far.

        The last token of a prompt is run in any case. Models that read states of others need those
        of the whole text, so that nothing is shared where there are such.
        """
        best = []
        for request in requests:
            prompt = torch.tensor(request.prompt_tokens, device=self.device)
            size = min(len(prompt), self.text.shape[1])
            same = (self.text[:, :size] == prompt[:size]).cumprod(1).sum(1).tolist()
            begun = [*map(min, same, self.lengths)]
            row = max(range(self.size), key=begun.__getitem__)
            best.append((row, 0 if self.tracks else min(begun[row], len(prompt) - 1)))
        return best

    @cached_property
    def ends(self) -> Tensor:  # type: ignore[override]
        """See `Texts`."""
        return torch.tensor(self.lengths, device=self.device)[:, None]

    @cached_property
    def last(self) -> Tensor:  # type: ignore[override]
        """See `Texts`."""
        return self.ends - 1

    @cached_property
    def written(self) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """See `Texts`; the last column is the longest request's."""
        starts = torch.tensor(self.starts, device=self.device)[:, None]
        longest = max(map(int.__sub__, self.lengths, self.starts))
        positions = starts + torch.arange(longest, device=self.device)
        keys = self.keys.gather(1, positions.clamp(max=self.keys.shape[1] - 1))
        return positions, keys, positions < self.ends

    def _forget(self) -> None:
        """Compute anew, when it is asked for, what follows from lengths and keys."""
        for name in ("ends", "last", "written", "_root"):
            self.__dict__.pop(name, None)

    def written_since_root(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same as `written`, with the round's root before them."""
        positions, keys, there = self.written
        root = torch.tensor(self.starts, device=self.device)[:, None] - 1
        always = torch.ones_like(root, dtype=torch.bool)
        return (
            torch.cat([root, positions], 1),
            torch.cat([self.keys.gather(1, root), keys], 1),
            torch.cat([always, there], 1),
        )

    def emitted(self, row: int) -> bool:
        """Whether a row's text grew in this round."""
        return self.lengths[row] > self.starts[row]

    def begin_round(self) -> None:
        """Forget the drafted nodes of the last round."""
        self.starts = list(self.lengths)
        self.__dict__.pop("written", None)
        for cache in self.caches.values():
            cache.begin_round(self.lengths)
        for track in self.tracks.values():
            track.begin_round()

    def append(self, row: int, tokens: Sequence[int]) -> list[int]:
        """Append tokens to a row's text, cut after a stop token and at the limit.

        Returns:
            What was appended; empty for a row that is done.
        """
        if self.done[row]:
            return []
        start, appended = self.lengths[row], list[int]()
        for token in tokens[: self.limits[row] - start]:
            appended.append(token)
            if token in self.stops[row]:
                self.done[row] = True
                break
        if appended:
            self._write(row, start, appended)
            if self.grammars is not None:
                self.grammars.append(row, appended)
        self.lengths[row] = start + len(appended)
        self.done[row] = self.done[row] or self.lengths[row] >= self.limits[row]
        self._forget()
        return appended

    def forget_keys(self) -> None:
        """Tell text apart by its places: graphs leave no keys of what they append."""
        places = torch.arange(self.keys.shape[1], device=self.device)
        self.keys.copy_(places.expand_as(self.keys))
        self._last_keys = [length - 1 for length in self.lengths]
        self._forget()

    def grown(self, counts: Sequence[int], done: Sequence[bool]) -> None:
        """Take over that a graph has appended so many tokens to each text; see `forget_keys`."""
        self.lengths = [*map(int.__add__, self.lengths, counts)]
        self._last_keys = [length - 1 for length in self.lengths]
        self.done[:] = done
        self._forget()

    def _write(self, row: int, start: int, tokens: Sequence[int]) -> None:
        """Put tokens into a text, and keys beside them."""
        keys, key = [], self._last_keys[row]
        for token in tokens:
            key = key_after(key, token)
            keys.append(key)
        self._last_keys[row] = key
        both = torch.tensor([tuple(tokens), keys], dtype=torch.int64, device=self.device)
        self._both[:, row, start : start + len(keys)] = both

    def add_states(
        self, analysis: PlanAnalysis, models: Mapping[str, Module], scores: torch.dtype | None,
        used: Mapping[str, KVCache],
    ) -> None:  # fmt: skip
        """Make room for what the plan keeps.

        Args:
            analysis: the plan, and how it runs its caches.
            models: by their roles.
            scores: see `root`.
            used: caches of an ended batch of this size, by name, to write over.
        """
        states = analysis.plan.states
        caches = [state for state in states if isinstance(state, CacheState)]
        asked = {state.view for state in caches if state.retrieves}
        for cache in sorted(caches, key=lambda state: state.view is not None):
            model, name = models[cache.model], cache.name
            passes = [one for one in analysis.pass_specs.values() if one.cache == name]
            retention = retention_of(cache, max((one.pending for one in passes), default=1))
            room = self.slots
            if retention is not None:
                room = min(room, retention.budget + retention.chunk + self.speculative)
            store = used.get(name) or model.new_cache(self.size, room, name in asked)
            store.bound_states(0 if name in analysis.passing else self.speculative)
            store.images = model.images_of(self.requests)
            of, way = self.caches.get(cache.view or ""), analysis.plain.get(name)
            segments, turns = analysis.segments[name], analysis.turning.get(name)
            made = self.caches[name] = Cache(model, store, segments, retention, of, way, turns)
            made.replays = cache.rollback == "replay"
            if cache.observes and cache.policy is not None:
                made.prompts = ObservedPrompts.of(model, self.requests, cache.policy)
        for state in states:
            if isinstance(state, TrackState):
                model = models[state.model]
                self.tracks[state.name] = first_track(state, model, self.requests, self.slots)
            elif isinstance(state, ValueState):
                self.values[state.name] = first_value(state, scores, self.size, self.device)


def retention_of(state: CacheState, pending: int) -> Retention | None:
    """What a cache keeps of the text; None for all of it.

    Args:
        state: its declaration.
        pending: text tokens that a pass on it reads at once, at most; a view does so, too.
    """
    if state.policy is None:
        return None
    declared = BUILTIN.find("policy", state.policy.name)
    assert declared is not None and state.budget is not None
    view = max(pending, 1)
    if state.retrieves:
        chunk = chunk_of(state)
        return Retention(state.budget, chunk, view, retrieved=chunk)
    if state.observes:
        return Retention(state.budget, state.budget // 2, view)
    sink = int(declared.arguments(state.policy)["sink"])
    chunk = view if state.view is not None else min(MOST_CHUNK, state.budget)
    return Retention(state.budget, min(sink, state.budget), chunk)
