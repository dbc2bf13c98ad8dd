"""The interpreter: rounds run op by op on a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specplan.backends.eager import lanes, sources
from specplan.backends.eager.op_runner import OpRunner, Scope
from specplan.backends.eager.passes.forward import catch_up
from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.regions import HostStops
from specplan.backends.eager.state.batch import MOST_CHUNK, Batch
from specplan.backends.eager.state.slots import overlaps
from specplan.backends.eager.stateful_ops import OPS, OpRecord
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.ir import ops as ir
from specplan.ir.needs import Work
from specplan.ir.values import State
from specplan.runtime.executable import Observer, StepResult
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings
from specplan.runtime.sources.registry import sources_of_batch
from specplan.runtime.sources.source import Source


class EagerSession(OpRunner):
    """One batch decoding under a plan.

    Attributes:
        active: which requests take part in the region that runs; None for all.
    """

    most_chunk = MOST_CHUNK
    stateful = OPS

    def __init__(
        self,
        analysis: PlanAnalysis,
        models: Mapping[str, Module],
        requests: Sequence[Request],
        shared: Mapping[str, Source],
        capacity: int | None,
        side_by_side: bool | None = None,
    ) -> None:
        plan = analysis.plan
        self.analysis, self.plan, self.models = analysis, plan, models
        self.lanes = lanes.lanes_of(plan, models)
        self.side_by_side = side_by_side
        self.ahead: set[int] = set()
        self.scores = models["target"].logits_dtype if analysis.scored else None
        used = sources_of_batch(plan, models["target"].vocab_size, shared, requests)
        self.batch = Batch(requests, models, used, analysis.speculative, capacity)
        self.batch.add_states(analysis, models, self.scores)
        self.emitted: list[list[int]] = []
        self.constants: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
        self.trip = 0
        self.active: list[bool] | None = None
        self.trips: list[Tensor] = []
        self.loops: list[HostStops] = []
        self.observer: Observer | None = None
        self.op_record: OpRecord | None = None

    @property
    def done(self) -> list[bool]:
        """Requests that want no more tokens."""
        return self.batch.done

    @property
    def idle_rows(self) -> list[bool]:
        """Requests that are done, or take no part in the region that runs."""
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
            if name not in self.analysis.prefilled:
                continue
            spec, start = self.analysis.whole[name], perf_counter()
            catch_up(self, cache, spec, 1)
            if observer is not None:
                seconds = perf_counter() - start
                longest = max(self.lengths)
                observer("prefill", spec.model, self.batch.size, longest, 0, seconds)

    @torch.inference_mode()
    def step(self, round_name: str, observer: Observer | None = None) -> StepResult:
        """Run one round.

        Args:
            round_name: of the plan.
            observer: gets every op's seconds.

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
                self.run_op(op, scope)
            else:
                self._observe(self.observer, op, scope)
            for name in self.analysis.spent.get(id(op), ()):
                scope.pop(name, None)

    def _observe(self, observer: Observer, op: ir.Op, scope: Scope) -> None:
        """Run one op, and report its seconds."""
        self.op_record = None
        start = perf_counter()
        self.run_op(op, scope)
        seconds = perf_counter() - start
        record = self.op_record
        if record is None:
            work = op.demand(self.analysis.steps[id(op), self.trip], self.plan)
            assert isinstance(work, Work), "passes say what they are"
            record = OpRecord(work.name, width=work.width)
        observer(record.name, record.model, self.batch.size, record.width, record.context, seconds)

    def taking_part(self) -> Tensor | None:
        """Which requests take part in the region that runs, bool `[B]`; None for all."""
        if self.active is None:
            return None
        return torch.tensor(self.active, device=self.batch.device)

    def root(self, op: ir.Op) -> Tree:
        """See `OpRunner.root`."""
        return self.batch.root(self.scores)

    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """See `OpRunner.state`."""
        return self.batch.values[op.state]

    def settings(self, op: ir.Op) -> SamplingSettings:
        """See `OpRunner.settings`."""
        return self.batch.settings

    def continuations(self, op: ir.Lookup, at: Nodes) -> Continuations:
        """See `OpRunner.continuations`."""
        return sources.continuations_below(self.batch, op, at)

    def lag(self, state: State, layers: Any) -> Tensor:
        """See `OpRunner.lag`."""
        lengths = self.batch.caches[state].lengths
        inside = [known for span, known in lengths.items() if overlaps(span, layers)]
        least = list(map(min, *inside)) if len(inside) > 1 else inside[0]
        lag = [now - done for now, done in zip(self.batch.lengths, least, strict=True)]
        return torch.tensor(lag, dtype=torch.float64)

    def counting(self) -> Tensor:
        """See `OpRunner.counting`; on the host."""
        return ~torch.tensor(self.idle_rows)

    def emitted_keys(self) -> tuple[Tensor, Tensor]:
        """See `OpRunner.emitted_keys`."""
        return self.batch.written()[1:]

    def number(self, numbers: Tensor) -> Tensor:
        """See `OpRunner.number`: on the host."""
        return numbers.cpu()

    def stops(self, only: Tensor | None) -> HostStops:
        """See `OpRunner.stops`."""
        return HostStops(self, only)
