"""The interpreter: rounds run op by op on a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specplan.backends.eager import lanes, sources
from specplan.backends.eager.observed import Observed
from specplan.backends.eager.passes.forward import catch_up
from specplan.backends.eager.prepared import Prepared
from specplan.backends.eager.run_ops import OPS
from specplan.backends.eager.state.batch import MOST_CHUNK, Batch
from specplan.backends.eager.values import Scope
from specplan.backends.ops import lowerings
from specplan.backends.ops.accept import Form, fastest
from specplan.backends.ops.tensors.values import Tree
from specplan.ir import ops as ir
from specplan.ir.needs import Work
from specplan.ir.types.value_types import Type
from specplan.ir.values import Value
from specplan.runtime.executable import Observer, StepResult
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings
from specplan.runtime.sources.registry import sources_of_batch
from specplan.runtime.sources.source import Source


class EagerSession:
    """One batch decoding under a plan.

    Attributes:
        trip: of all loops around the op that runs, counted together.
        active: which requests take part in the region that runs; None for all.
    """

    most_chunk = MOST_CHUNK

    def __init__(
        self,
        prepared: Prepared,
        models: Mapping[str, Module],
        requests: Sequence[Request],
        shared: Mapping[str, Source],
        capacity: int | None,
        side_by_side: bool | None = None,
    ) -> None:
        plan = prepared.plan
        self.prepared, self.plan, self.models = prepared, plan, models
        self.lanes = lanes.lanes_of(plan, models)
        self.side_by_side = side_by_side
        self.ahead: set[int] = set()
        self.scores = models["target"].logits_dtype if prepared.scored else None
        used = sources_of_batch(plan, models["target"].vocab_size, shared, requests)
        self.batch = Batch(requests, models, used, prepared.speculative, capacity)
        self.batch.add_states(prepared, models, self.scores)
        self.emitted: list[list[int]] = []
        self.constants: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
        self.trip = 0
        self.active: list[bool] | None = None
        self.trips: list[Tensor] = []
        self.loops: list[Any] = []
        self.observer: Observer | None = None
        self.observed: Observed | None = None

    @property
    def done(self) -> list[bool]:
        """Rows that want no more tokens."""
        return self.batch.done

    @property
    def idle_rows(self) -> list[bool]:
        """Rows that are done, or take no part in the region that runs."""
        if self.active is None:
            return self.batch.done
        return [done or not own for done, own in zip(self.batch.done, self.active, strict=True)]

    @property
    def lengths(self) -> list[int]:
        """Tokens of text per row, prompt included."""
        return self.batch.lengths

    def text(self, row: int) -> list[int]:
        """Tokens of a row: prompt and output."""
        tokens: list[int] = self.batch.text[row, : self.batch.lengths[row]].tolist()
        return tokens

    def finish(self, row: int) -> None:
        """Want no more tokens for a row."""
        self.batch.done[row] = True

    def release(self) -> None:
        """Free the caches, and end the texts that sources learn."""
        sources.close(self.batch.text, self.batch.lengths, self.batch.sources)
        self.batch.caches.clear()
        self.batch.tracks.clear()

    @torch.inference_mode()
    def prefill(self, observer: Observer | None = None) -> None:
        """Run the prompts, all but the last token, through every model that keeps a cache.

        Models that read another one's states, or leave layers out, catch up in the first round.
        """
        for name, cache in self.batch.caches.items():
            if cache.of is not None:
                cache.refresh()
                continue
            if name not in self.prepared.prefilled:
                continue
            stretch, start = self.prepared.whole[name], perf_counter()
            catch_up(self, cache, stretch, 1)
            if observer is not None:
                seconds = perf_counter() - start
                longest = max(self.lengths)
                observer("prefill", stretch.model, self.batch.size, longest, 0, seconds)

    @torch.inference_mode()
    def step(self, round_name: str, observer: Observer | None = None) -> StepResult:
        """Run one round.

        Args:
            round_name: of the plan.
            observer: told of every op's seconds.

        Returns:
            Emitted tokens `[B, W]`, padded with -1, and how many per row.
        """
        self.observer = observer
        self.batch.begin_round()
        self.emitted = [[] for _ in self.batch.starts]
        self.trips, self.loops = [], []
        self.run(self.plan.round(round_name).ops, {})
        counts = [len(row) for row in self.emitted]
        width = max(1, *counts)
        tokens = torch.tensor([row + [-1] * (width - len(row)) for row in self.emitted])
        trips = torch.stack(self.trips, 1) if self.trips else None
        return StepResult(tokens=tokens, counts=torch.tensor(counts), trips=trips)

    def run(self, ops: tuple[ir.Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""
        for op in ops:
            if self.observer is None or op.body is not None:
                self._run_one(op, scope)
            else:
                self._observe(self.observer, op, scope)
            for name in self.prepared.spent.get(id(op), ()):
                scope.pop(name, None)

    def _run_one(self, op: ir.Op, scope: Scope) -> None:
        special = OPS.get(type(op))
        if special is not None:
            special(self, op, scope)
        else:
            scope[op.results[0]] = lowerings()[op.keyword](op, scope, self)

    def _observe(self, observer: Observer, op: ir.Op, scope: Scope) -> None:
        """Run one op, and tell how long it took."""
        self.observed = None
        start = perf_counter()
        self._run_one(op, scope)
        seconds = perf_counter() - start
        seen = self.observed
        if seen is None:
            work = op.demand(self.prepared.steps[id(op), self.trip], self.plan)
            assert isinstance(work, Work), "passes say what they are"
            seen = Observed(work.name, width=work.width)
        observer(seen.name, seen.model, self.batch.size, seen.width, seen.context, seconds)

    def taking_part(self) -> Tensor | None:
        """Which requests take part in the region that runs, bool `[B]`; None for all."""
        if self.active is None:
            return None
        return torch.tensor(self.active, device=self.batch.device)

    # what lowerings ask: see `specplan.backends.ops.Runner`

    def kind(self, op: ir.Op) -> Type:
        """See `Runner.kind`."""
        return self.prepared.steps[id(op), self.trip].gives[0]

    def reads(self, op: ir.Op) -> Mapping[Value, Type]:
        """See `Runner.reads`."""
        return self.prepared.steps[id(op), self.trip].reads

    def root(self, op: ir.Op) -> Tree:
        """See `Runner.root`."""
        return self.batch.root(self.scores)

    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """See `Runner.state`."""
        return self.batch.values[op.state]

    def keeps_probs(self, op: ir.Store) -> bool:
        """See `Runner.keeps_probs`."""
        return op.state in self.prepared.drawn

    def settings(self, op: ir.Op) -> SamplingSettings:
        """See `Runner.settings`."""
        return self.batch.settings

    def remembers(self, op: ir.Op) -> bool:
        """See `Runner.remembers`."""
        return self.prepared.mixes

    def most(self, op: ir.Op) -> int | None:
        """See `Runner.most`."""
        return self.prepared.judged.get(id(op))

    def form(self, op: ir.Op) -> Form:
        """See `Runner.form`."""
        return fastest
