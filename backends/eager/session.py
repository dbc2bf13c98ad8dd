"""A batch that the interpreter decodes, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import torch

from specplan.backends.binding import check_requests, refuse_images
from specplan.backends.eager import sources
from specplan.backends.eager.interpreter import Interpreter, OpRecord
from specplan.backends.eager.op_runner import Scope
from specplan.ir import ops as ir
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.needs import Work
from specplan.runtime.executable import Observer, StepResult
from specplan.runtime.requests import Request


class EagerSession(Interpreter):
    """One batch decoding under a plan; see `specplan.runtime.executable.ContinuousSession`.

    Attributes:
        joined: rows whose prompts `prefill` runs; None for all.
    """

    joined: list[bool] | None = None

    @property
    def done(self) -> list[bool]:
        """Requests that want no more tokens."""
        return self.batch.done

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

    @torch.inference_mode()
    def exchange(self, leaving: Sequence[int], coming: Sequence[Request]) -> int:
        """See `specplan.runtime.executable.ContinuousSession`."""
        batch = self.batch
        check_requests(self.plan, self.models, coming, empty=True)
        refuse_images(batch.requests)
        for request in coming:
            length = len(request.prompt_tokens) + request.max_new_tokens
            if length + batch.speculative > batch.slots:
                raise UsageError(
                    f"a text of {length} tokens exceeds the {batch.slots - batch.speculative} that "
                    "the batch has room for",
                    where="eager",
                    remedy="Start it with a larger capacity=.",
                )
        for name, cache in batch.caches.items():
            if cache.of is not None:
                raise MissingCapabilityError(
                    f"@{name} is a view, which cannot take new texts in between rounds",
                    where="eager",
                    remedy="Decode batches that begin together.",
                )
        ended = {row: np.array(self.text(row)) for row in leaving}
        stay = [row for row in range(batch.size) if row not in ended]
        for source in batch.sources.values():
            source.exchange(stay, ended, coming)
        batch.exchange(stay, coming, self.plan, self.models)
        self.running = torch.ones(batch.size, dtype=torch.bool)
        self.joined = [row >= len(stay) for row in range(batch.size)]
        return batch.shared

    def release(self) -> None:
        """Free the caches, and end the texts that sources learn."""
        sources.close(self.batch.text, self.lengths, self.batch.sources)
        self.batch.caches.clear()
        self.batch.tracks.clear()

    @torch.inference_mode()
    def prefill(self, observer: Observer | None = None) -> None:
        """Run the prompts, all but the last token, through every model that keeps a cache.

        Models that read another one's states, or leave layers out, catch up in the first round, and
        so do those whose passes bound the tokens of all requests (`most=`).
        """
        self.active = self.joined
        for name, cache in self.batch.caches.items():
            if cache.of is not None:
                cache.refresh()
                continue
            if name not in self.analysis.prefilled:
                continue
            spec, start = self.analysis.whole[name], perf_counter()
            self.take_in(cache, spec)
            if observer is not None:
                seconds = perf_counter() - start
                longest = max(self.lengths)
                observer("prefill", spec.model, self.batch.size, longest, 0, seconds)
        self.active = None

    @torch.inference_mode()
    def step(self, round_name: str, observer: Observer | None = None) -> StepResult:
        """Run one round.

        Args:
            round_name: of the plan.
            observer: gets every op's seconds.

        Returns:
            Emitted tokens.
        """
        self.observer = observer
        self.batch.begin_round()
        self.emitted = [[] for _ in self.batch.starts]
        self.trips = []
        self.run(self.plan.round(round_name).ops, {})
        return StepResult(self.emitted, torch.stack(self.trips, 1) if self.trips else None)

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
        if self.caught_up is not None:
            (model, tokens, before), self.caught_up = self.caught_up, None
            observer("forward", model, self.batch.size, tokens, tokens, before)
            seconds -= before
        record = self.op_record
        if record is None:
            work = op.demand(self.analysis.steps[id(op), self.trip], self.plan)
            assert isinstance(work, Work), "passes say what they are"
            record = OpRecord(work.name, width=work.width)
        observer(record.name, record.model, self.batch.size, record.width, record.context, seconds)
