"""The state of a batch between rounds: texts and their keys, what is done, caches and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.caches import Cache, Retention
from specplan.backends.eager.state.grammars import Grammars
from specplan.backends.eager.state.texts import Texts
from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.load import stored_tree
from specplan.backends.ops.tensors.keys import FIRST_KEY, NO_KEY, key_after
from specplan.backends.ops.tensors.values import Tree
from specplan.cost_models.rounds.refreshing import chunk_of
from specplan.ir.plan import CacheState, TrackState, ValueState
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.types.state_types import loaded_type
from specplan.ir.types.value_types import TreeType
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings
from specplan.runtime.sources.registry import BatchSource

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
    """

    def __init__(
        self,
        requests: Sequence[Request],
        models: Mapping[str, Module],
        sources: Mapping[str, BatchSource],
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
        self.speculative = speculative
        self.slots = max(capacity or 0, max(self.limits)) + speculative
        shape = (len(self.requests), self.slots + 1)
        self._both = torch.zeros(2, *shape, dtype=torch.int64, device=self.device)
        self.text, self.keys = self._both
        self.keys.fill_(NO_KEY)
        self._last_keys = [FIRST_KEY] * self.size
        for row, request in enumerate(self.requests):
            self._write(row, 0, request.prompt_tokens)
        self.caches: dict[str, Cache] = {}
        self.tracks: dict[str, Track] = {}
        self.values: dict[str, Tree | Tensor] = {}
        self.sources = dict(sources)
        self.grammars = Grammars.of(self.requests)

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
        appended: list[int] = []
        for token in tokens[: self.limits[row] - self.lengths[row]]:
            appended.append(token)
            if token in self.stops[row]:
                self.done[row] = True
                break
        start = self.lengths[row]
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
        self, analysis: PlanAnalysis, models: Mapping[str, Module], scores: torch.dtype | None
    ) -> None:
        """Make room for what the plan keeps.

        Args:
            analysis: the plan, and how it runs its caches.
            models: by their roles.
            scores: see `root`.
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
            store = model.new_cache(self.size, room, name in asked)
            of, way = self.caches.get(cache.view or ""), analysis.plain.get(name)
            segments, turns = analysis.segments[name], name in analysis.turning
            self.caches[name] = Cache(model, store, segments, retention, of, way, turns)
        for state in states:
            if isinstance(state, TrackState):
                self.tracks[state.name] = self._track(state, models[state.model])
            elif isinstance(state, ValueState):
                self.values[state.name] = self._value(state, scores)

    def _track(self, state: TrackState, model: Module) -> Track:
        parts = len(state.layer) if isinstance(state.layer, tuple) else 1
        shape = (self.size, self.slots + 1, parts * model.hidden_size)
        track = Track.empty(torch.zeros(shape, dtype=model.dtype, device=self.device), state.levels)
        if isinstance(state.layer, str) and state.layer != "last":
            outside = model.outside(state.layer, self.requests)
            track.text = outside[:, None].expand(-1, self.slots + 1, -1)
            track.known[:] = True
        return track

    def _value(self, state: ValueState, scores: torch.dtype | None) -> Tree | Tensor:
        """What a value state holds before the first round: a number, or constant tokens.

        A tree without an initial token has no node yet.
        """
        kind = loaded_type(state, state.name)
        if not isinstance(kind, TreeType):
            start = state.kind.get("init", 0.0)
            assert isinstance(start, int | float)
            return torch.full((self.size,), float(start), dtype=torch.float64)
        token = state.kind.integer("init", -1)
        shape = (self.size, 1 + kind.nodes)
        tokens = torch.full(shape, max(token, 0), device=self.device)
        live = torch.full(shape, token >= 0, dtype=torch.bool, device=self.device)
        live[:, 0] = True
        names = () if scores is None else ("own", "scores")
        return stored_tree(kind, tokens, live, **{name: tokens.to(scores) * 0 for name in names})


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
    sink = int(declared.arguments(state.policy)["sink"])
    chunk = view if state.view is not None else min(MOST_CHUNK, state.budget)
    return Retention(state.budget, min(sink, state.budget), chunk)
