"""The tensors that a round reads and writes: a flat list in a fixed order, and names for it.

A compiled round is a function of this list. It writes texts, caches and tracks in place and
returns one tensor, its report, so that one transfer tells the host what became of every request.
`specplan.backends.static.functional` has the form that gives what it would write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from specplan.backends.eager.state.tracks import Track
from specplan.backends.static.traced.states import value_parts
from specplan.ir.ops import Compute, Op, Segment, Uniform, Update
from specplan.ir.plan import CacheState, Plan, Round, SourceState, TrackState, ValueState, walk
from specplan.ir.types.host_ops import handed_out, host_ops
from specplan.ir.types.infer import infer_round
from specplan.ir.types.scope import operands
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import State, Value
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.sources.registry import row_width

PER_REQUEST = (
    "text", "prompts", "lengths", "limits", "stops", "done", "temperature", "top_k", "top_p",
    "uniforms", "lookup_tokens", "lookup_parents", "lookup_live",
)  # fmt: skip
SLOTS = "slots"
SLOTS_PLACE = len(PER_REQUEST)
"""Where the slots attended to stand in the flat list."""


@dataclass(frozen=True)
class RoundTensors:
    """What a round works on.

    Attributes:
        text: int64 `[B, S]`; the last column is that of dead lanes. Written.
        prompts: tokens of each prompt, int64 `[B]`.
        lengths: tokens of each text, int64 `[B]`.
        limits: lengths at which the texts end, int64 `[B]`.
        stops: tokens after which each text ends, int64 `[B, E]`, padded with -1.
        done: requests that want no more tokens, bool `[B]`.
        temperature: float32 `[B]`.
        top_k: int64 `[B]`.
        top_p: float64 `[B]`.
        uniforms: numbers of all `uniform` ops, one after the other, float64 `[B, D]`.
        lookup_tokens: results of all `lookup` ops, one after the other, int64 `[B, F]`.
        lookup_parents: their parents within the same lookup, -1 for the node that it began at,
            int64 `[B, F]`.
        lookup_live: which of them there are, bool `[B, F]`.
        slots: the slots attended to, `0 .. U - 1`, int64 `[U]`; those behind a text are masked.
        resident: by cache, text tokens that each of its segments has taken in, int64 `[B, L]`.
        stores: by cache, its keys, values and positions. Written.
        tracks: by track, hidden states `[B, S, hidden]`, which of them are there, `[B, S]`, and
            passes that they went through, int64 `[B, S]`; then those of slots below, level by
            level. Written.
        values: by value state, what `value_parts` in `traced/states.py` returns. Written.
    """

    text: Tensor
    prompts: Tensor
    lengths: Tensor
    limits: Tensor
    stops: Tensor
    done: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    uniforms: Tensor
    lookup_tokens: Tensor
    lookup_parents: Tensor
    lookup_live: Tensor
    slots: Tensor
    resident: Mapping[str, Tensor]
    stores: Mapping[str, KVCache]
    tracks: Mapping[str, tuple[Tensor, ...]]
    values: Mapping[str, tuple[Tensor, ...]]

    def flat(self) -> list[Tensor]:
        """All of them, in the order of `Interface.names`."""
        tensors = [getattr(self, name) for name in (*PER_REQUEST, SLOTS)]
        for name, store in self.stores.items():
            tensors += [self.resident[name], store.positions, *store.keys, *store.values]
        for parts in (*self.tracks.values(), *self.values.values()):
            tensors += parts
        return tensors


def track_parts(levels: int) -> tuple[str, ...]:
    """What each tensor of a track holds; those of slots bear their level."""
    deeper = (f"{part}.{level}" for level in range(1, levels) for part in Track.PARTS)
    return (*Track.PARTS, *deeper)


@dataclass(frozen=True)
class Interface:
    """The order of a plan's tensors.

    Attributes:
        caches: name and layers of each.
        tracks: name of each, and what it has.
        values: name of each, and what it has.
    """

    caches: tuple[tuple[str, int], ...]
    tracks: tuple[tuple[str, tuple[str, ...]], ...]
    values: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, plan: Plan, models: Mapping[str, Module], scored: bool) -> Interface:
        """The interface that all rounds of a plan share; `scored` where an op reads scores."""
        return cls(
            tuple(
                (state.name, models[state.model].num_layers)
                for state in plan.states
                if isinstance(state, CacheState)
            ),
            tuple(
                (state.name, track_parts(state.levels))
                for state in plan.states
                if isinstance(state, TrackState)
            ),
            tuple(
                (state.name, value_parts(state, scored))
                for state in plan.states
                if isinstance(state, ValueState)
            ),
        )

    def parts(self, state: State) -> tuple[str, ...]:
        """What each tensor of a value state holds."""
        return dict(self.values)[state]

    def names(self) -> list[str]:
        """A name for each tensor of the flat list."""
        names = [*PER_REQUEST, SLOTS]
        for cache, layers in self.caches:
            names += [f"{cache}.resident", f"{cache}.positions"]
            names += (f"{cache}.{part}.{i}" for part in ("keys", "values") for i in range(layers))
        for state, parts in (*self.tracks, *self.values):
            names += (f"{state}.{part}" for part in parts)
        return names

    def written(self) -> list[str]:
        """Names of those that a round writes: texts, and states but for how far caches are."""
        names = self.names()
        return [n for n in names if n == "text" or ("." in n and not n.endswith(".resident"))]

    def read(self, tensors: Sequence[Tensor]) -> RoundTensors:
        """The tensors of a flat list by their names."""
        rest = iter(tensors)

        def take(count: int) -> list[Tensor]:
            return list(islice(rest, count))

        fixed = dict(zip((*PER_REQUEST, SLOTS), take(len(PER_REQUEST) + 1), strict=True))
        resident, stores = {}, {}
        for name, layers in self.caches:
            resident[name], positions = take(2)
            stores[name] = KVCache(take(layers), take(layers), positions)
        tracks = {name: tuple(take(len(parts))) for name, parts in self.tracks}
        values = {name: tuple(take(len(parts))) for name, parts in self.values}
        return RoundTensors(**fixed, resident=resident, stores=stores, tracks=tracks, values=values)


@dataclass(frozen=True)
class Lesson:
    """What a source learns of a round that has run.

    Attributes:
        op: the `update` op.
        columns: of its tree, 1 + N.
        width: likeliest tokens after each node, for a source that learns logits; the round
            reports what `specplan.backends.eager.sources.judged_tokens` gives. 0 for a source that
            learns the paths of the tree: the round reports tokens, parents and live mask,
            `[B, 1 + N]` each. Of a tree without nodes it learns the text, and nothing is reported.
    """

    op: Update
    columns: int
    width: int = 0

    @property
    def numbers(self) -> int:
        """Numbers that the round reports of a request."""
        if self.width:
            return self.columns * (2 + self.width)
        return self.columns * 3 if self.columns > 1 else 0


@dataclass(frozen=True)
class HostInputs:
    """What the host computes for a round before it runs, and does after it.

    Attributes:
        uniforms: each `uniform` op, its first column, and how often it runs: once, or in every
            trip of a loop that may end early.
        first: ops that the host runs before the round.
        read: what these read.
        lessons: what sources learn afterwards.
        formulas: of the round.
    """

    uniforms: tuple[tuple[Uniform, int, int], ...]
    first: tuple[Op, ...]
    read: frozenset[Value]
    lessons: tuple[Lesson, ...]
    formulas: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, item: Round, vocabulary: int) -> HostInputs:
        """Those of a round."""
        trips = {id(step.op): step.trips for step in infer_round(plan, item).steps}
        uniforms: list[tuple[Uniform, int, int]] = []
        drawn = 0
        for op in walk(item.ops):
            if isinstance(op, Uniform):
                times = trips[id(op)]
                uniforms.append((op, drawn, times))
                drawn += op.count * times
        formulas = dict.fromkeys(op.formula for op in walk(item.ops) if isinstance(op, Compute))
        before, after = host_ops(item)
        lessons = tuple(_lessons(plan, item, after, vocabulary))
        read = frozenset(value for op in before for value in _read(op))
        return cls(tuple(uniforms), before, read, lessons, tuple(formulas))


def _read(op: Op) -> Iterator[Value]:
    if isinstance(op, Segment):
        yield from (own for _, own in handed_out(op))
    else:
        yield from operands(op)


def _lessons(plan: Plan, item: Round, after: Sequence[Update], vocabulary: int) -> Iterator[Lesson]:
    types = infer_round(plan, item).types if after else {}
    for op in after:
        tree, state = types[op.tree], plan.state(op.source)
        assert isinstance(tree, TreeType) and isinstance(state, SourceState)
        width = 0 if op.logits is None else min(row_width(state), vocabulary)
        if op.logits is None or width:  # others learn nothing from logits
            yield Lesson(op, 1 + tree.nodes, width)


def free_sizes(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Which sizes of a flat list a compiled round leaves free: how many slots are attended to."""
    free: list[Any] = [None] * len(tensors)
    free[SLOTS_PLACE] = {0: Dim("used", min=2, max=tensors[0].shape[1] - 1)}
    return tuple(free)


def report(
    tokens: Tensor,
    counts: Tensor,
    done: Tensor,
    failed: Tensor | None,
    resident: Sequence[Tensor],
    lessons: Sequence[Tensor],
) -> Tensor:
    """What a round reports to the host, int64 `[B, W + 2 + segments + lessons]`.

    `failed` `[B]`, 0 where all is well, shares a column with `done`, as twice its number. What
    sources learn, `[B, ...]` each, comes last.
    """
    ended = done.long() if failed is None else done.long() + 2 * failed
    columns = [tokens, counts[:, None], ended[:, None]]
    columns += [lengths[:, None] for lengths in resident]
    return torch.cat([*columns, *(part.flatten(1) for part in lessons)], 1)
