"""A batch of requests in lockstep: each op runs for all of them before the next one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from specplan.backends.oracle.passes import read_early
from specplan.backends.oracle.stacks import Stack
from specplan.backends.oracle.world import OneRequest, TypesByTrip
from specplan.ir.meaning import Scope
from specplan.ir.plan import CacheState, Plan
from specplan.ir.types.infer import infer_round
from specplan.runtime.executable import Observer, StepResult
from specplan.runtime.requests import Request
from specplan.runtime.sources.registry import sources_of_batch
from specplan.runtime.sources.source import Source


class OracleSession:
    """One batch decoding under a plan; see `specplan.runtime.executable.Session`."""

    def __init__(
        self,
        plan: Plan,
        stacks: Mapping[str, Stack],
        requests: Sequence[Request],
        shared: Mapping[str, Source],
    ) -> None:
        self.plan = plan
        vocabulary = stacks["target"].vocab_size
        self.sources = sources_of_batch(plan, vocabulary, shared, requests)
        self.worlds = [
            OneRequest(plan, stacks, request, self.sources, row, self)
            for row, request in enumerate(requests)
        ]
        self.types = {item.name: TypesByTrip(infer_round(plan, item)) for item in plan.rounds}
        self.trips: list[dict[int, int]] = []

    @property
    def done(self) -> list[bool]:
        """Rows that want no more tokens."""
        return [world.done for world in self.worlds]

    @property
    def lengths(self) -> list[int]:
        """Tokens of text per row, prompt included."""
        return [len(world.text) for world in self.worlds]

    def finish(self, row: int) -> None:
        """Want no more tokens for a row."""
        self.worlds[row].done = True

    def release(self) -> None:
        """End the texts that sources learn."""
        for use in self.sources.values():
            use.close([np.array(world.text) for world in self.worlds])

    @torch.inference_mode()
    def prefill(self, observer: Observer | None = None) -> None:
        """Views are copied once their caches have read the text; all else reads in its round."""
        for state in self.plan.states:
            if not isinstance(state, CacheState) or state.view is None:
                continue
            for world in self.worlds:
                viewed = self.plan.state(state.view)
                assert isinstance(viewed, CacheState)
                read_early(world, viewed, [world.text[:n] for n in range(1, len(world.text))])
                world.refresh(state.name)

    @torch.inference_mode()
    def step(self, round_name: str, observer: Observer | None = None) -> StepResult:
        """Run one round; see `Session.step`."""
        active = {row: Scope() for row, world in enumerate(self.worlds) if not world.done}
        for row in active:
            self.worlds[row].begin_round(self.types[round_name])
        self.trips = []
        self.run(self.plan.round(round_name).ops, active)
        emitted = [
            world.text[len(world.begin) :] if row in active else ()
            for row, world in enumerate(self.worlds)
        ]
        trips = [[loop.get(row, 0) for loop in self.trips] for row in range(len(self.worlds))]
        return StepResult(emitted, torch.tensor(trips) if self.trips else None)

    def run(self, ops: Sequence[Any], scopes: Mapping[int, Scope]) -> None:
        """See `specplan.ir.world.Batch.run`."""
        for op in ops:
            if not scopes:
                return
            op.run_all(scopes, self)
