"""The state of a batch between rounds: texts and their keys, what is done, caches and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.caches import Cache, Retention
from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.root import first_tree
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


class Batch:
    """Requests that run together.

    Attributes:
        requests: one per row.
        lengths: tokens of text per row, prompt included.
        text: int64 `[B, S + 1]`, padded with 0; the last column is never part of a text.
        keys: of the text up to every token, int64 `[B, S + 1]`.
        done: requests that want no more tokens.
        starts: tokens of text per row when the round began.
        caches: by the name of the cache state.
        tracks: by the name of the track state.
        sources: by the name of the source state.
        values: by the name of the value state, what the last round left.
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
        shape = (self.size, self.slots + 1)
        self._both = torch.zeros(2, *shape, dtype=torch.int64, device=self.device)
        self.text, self.keys = self._both
        self.keys.fill_(NO_KEY)
        self.last_keys = [FIRST_KEY] * self.size
        for row, request in enumerate(self.requests):
            self._write(row, 0, request.prompt_tokens)
        self.caches: dict[str, Cache] = {}
        self.tracks: dict[str, Track] = {}
        self.values: dict[str, Tree | Tensor] = {}
        self.sources = dict(sources)
        self._ends: Tensor | None = None
        self._last: Tensor | None = None
        self._root: Tree | None = None
        self._written: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def size(self) -> int:
        """Requests."""
        return len(self.requests)

    @property
    def ends(self) -> Tensor:
        """Lengths of the texts, int64 `[B, 1]`."""
        if self._ends is None:
            self._ends = torch.tensor(self.lengths, device=self.device)[:, None]
        return self._ends

    @property
    def last(self) -> Tensor:
        """Positions of the last tokens of the texts, int64 `[B, 1]`."""
        if self._last is None:
            self._last = self.ends - 1
        return self._last

    def root(self, scores: torch.dtype | None) -> Tree:
        """The tree without drafted nodes, of the texts as they are now."""
        if self._root is None:
            last = self.last
            tokens, keys = self.text.gather(1, last), self.keys.gather(1, last)
            self._root = first_tree(tokens, keys, scores)
        return self._root

    def written(self) -> tuple[Tensor, Tensor, Tensor]:
        """Positions of what this round emitted, int64 `[B, E]`, keys, and which of them there are.

        The last column is the longest request's.
        """
        if self._written is None:
            starts = torch.tensor(self.starts, device=self.device)[:, None]
            longest = max(map(int.__sub__, self.lengths, self.starts))
            positions = starts + torch.arange(longest, device=self.device)
            keys = self.keys.gather(1, positions.clamp(max=self.keys.shape[1] - 1))
            self._written = positions, keys, positions < self.ends
        return self._written

    def written_since_root(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same as `written`, with the round's root before them."""
        positions, keys, there = self.written()
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
        self.starts, self._written = list(self.lengths), None
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
        self.lengths[row] = start + len(appended)
        self.done[row] = self.done[row] or self.lengths[row] >= self.limits[row]
        self._ends = self._last = self._root = self._written = None
        return appended

    def forget_keys(self) -> None:
        """Tell text apart by its places: graphs leave no keys of what they append."""
        places = torch.arange(self.keys.shape[1], device=self.device)
        self.keys.copy_(places.expand_as(self.keys))
        self.last_keys = [length - 1 for length in self.lengths]
        self._root = self._written = None

    def grown(self, counts: Sequence[int], done: Sequence[bool]) -> None:
        """Take over that a graph has appended so many tokens to each text; see `forget_keys`."""
        self.lengths = [*map(int.__add__, self.lengths, counts)]
        self.last_keys = [length - 1 for length in self.lengths]
        self.done[:] = done
        self._ends = self._last = self._root = self._written = None

    def _write(self, row: int, start: int, tokens: Sequence[int]) -> None:
        """Put tokens into a text, and keys beside them."""
        keys, key = [], self.last_keys[row]
        for token in tokens:
            key = key_after(key, token)
            keys.append(key)
        self.last_keys[row] = key
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
        above = kind.parents or tuple(range(-1, kind.nodes - 1))
        parents = torch.tensor([0, *(parent + 1 for parent in above)], device=self.device)
        root = self.root(scores)
        shape = (self.size, 1 + kind.nodes)
        zero = torch.zeros(shape, dtype=torch.int64, device=self.device)
        live = torch.full(shape, token >= 0, dtype=torch.bool, device=self.device)
        live[:, 0] = True
        score = None if scores is None else zero.to(scores)
        return Tree(
            tokens=zero + max(token, 0), parents=parents.expand(self.size, -1), depths=zero,
            live=live, keys=root.keys.expand(shape), probs_row=zero - 1, own=score, scores=score,
            levels=kind.depth, newest=range(1, 1 + kind.nodes) if kind.nodes else range(1),
            chain=kind.is_chain, in_order=kind.is_chain,
        )  # fmt: skip


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
