"""A batch whose rounds are graphs: the host tracks lengths, graphs do everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.passes.text import fills, reads_more, settle
from specplan.backends.eager.session import EagerSession
from specplan.backends.eager.state.caches import Cache
from specplan.backends.static.buckets import Bucket, Sampling
from specplan.backends.static.captured import CapturedRound, slots_attended
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import SLOTS_PLACE, HostInputs, RoundTensors
from specplan.backends.static.traced.host_round import HostRound
from specplan.backends.static.traced.lookups import Lookups, teach
from specplan.backends.static.traced.states import first_values, value_of
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import ValueState
from specplan.ir.types.matching import outcome_words
from specplan.runtime.executable import Observer, StepResult
from specplan.runtime.requests import Request
from specplan.runtime.uniforms import numbers_of

if TYPE_CHECKING:
    from specplan.backends.static.executable import StaticExecutable

Program: TypeAlias = Callable[..., Tensor]
"""A round, compiled or not: from the tensors of its interface to its report."""
TextProgram: TypeAlias = Callable[..., None]
"""Takes tokens `[1, T]`, the first of them at a position, into a `KVCache`.

A head gets hidden states `[T, F]` as well; other models may write some, see `States`.
"""
States: TypeAlias = tuple[tuple[int, ...], ...]
"""Tensors of hidden states, each by the numbers of layers after which its parts are."""

SLOTS_STEP = 32
"""An attention op of a runtime gets a multiple of so many slots; it reads those of the text."""


class StaticSession(EagerSession):
    """One batch, whose texts are run by the interpreter where no round takes them in.

    Args:
        programs: the plan's rounds.
        requests: real ones; others, already done, fill the batch up.
        bucket: the shape of the batch.

    Attributes:
        size: how many requests are real.
        values: what goes from round to round, as `RoundTensors` has it.
    """

    def __init__(
        self, programs: StaticExecutable, requests: Sequence[Request], bucket: Bucket
    ) -> None:
        spare = Request(prompt_tokens=(0,), max_new_tokens=0)
        filled = [*requests, *[spare] * (bucket.batch - len(requests))]
        super().__init__(
            programs.analysis, programs.models, filled, programs.shared, bucket.text,
            used_caches=programs.used_caches.pop(bucket, {}),
        )  # fmt: skip
        batch, self.size = self.batch, len(requests)
        self.programs = programs
        self.bucket = bucket
        self.sampling = Sampling.of(batch.settings)
        self._stops = torch.tensor(bucket.stop_rows(batch.stops), device=batch.device)
        self._limits = torch.tensor(batch.limits, device=batch.device)
        self._prompts = torch.tensor([len(one.prompt_tokens) for one in batch.requests])
        self._lengths, self._done = torch.tensor(batch.lengths), torch.tensor(batch.done)
        self._resident = {
            name: torch.zeros(batch.size, len(cache.lengths), dtype=torch.int64)
            for name, cache in batch.caches.items()
        }
        self._host_lengths, self._host_done = self._lengths.numpy(), self._done.numpy()
        self._segments = [(one, span) for one in batch.caches.values() for span in one.segments]
        self._host_resident = [(self._resident[n].numpy(), c) for n, c in batch.caches.items()]
        self._order = torch.arange(batch.text.shape[1], device=batch.device)
        self._rounds: dict[str, HostRound] = {}
        self._captured: dict[tuple[str, int | None], tuple[int, CapturedRound]] = {}
        # Passes of the first round may read prompts: in which order, the interpreter knows.
        self._late = not self.analysis.prefilled.issuperset(batch.caches)
        if not self._late:
            batch.forget_keys()
        self.values = first_values(batch, self.analysis, self.models["target"])

    @property
    def lengths(self) -> list[int]:
        """Tokens of text per row, prompt included."""
        return self.batch.lengths[: self.size]

    @property
    def done(self) -> list[bool]:
        """Requests that want no more tokens."""
        return self.batch.done[: self.size]

    def exchange(self, leaving: Sequence[int], coming: Sequence[Request]) -> int:
        """Graphs are made for batches of one size.

        Raises:
            MissingCapabilityError: always.
        """
        raise MissingCapabilityError(
            "requests cannot join a batch whose rounds are graphs",
            where=f"plan {self.plan.name}",
            remedy="Compile the plan for the backend eager.",
        )

    @torch.inference_mode()
    def release(self) -> None:
        """See `EagerSession.release`; what fills the batch up teaches sources nothing."""
        self._captured.clear()
        caches = {name: cache.store for name, cache in self.batch.caches.items()}
        used = {name: store for name, store in caches.items() if store.reusable}
        for store in used.values():
            store.positions.zero_()
        self.programs.used_caches = {self.bucket: used}
        super().release()

    @torch.inference_mode()
    def step(self, round_name: str, observer: Observer | None = None) -> StepResult:
        """Run one round in one call; an observer gets one op, such as `round-unmatched`."""
        ready = self._rounds.get(round_name) or self._ready(round_name)
        graph, passes = ready.graph, ready.passes
        known = self.programs.read_ahead(self.batch) if self._late else ()
        blind = self.programs.blind(self.batch) if self._late else []
        short = self.batch.size == 1 and self.batch.lengths[0] < graph.least_text
        if blind is None or short or any(reads_more(self, *one) for one in passes):
            return self._interpreted(graph, known)
        start = perf_counter()
        self.batch.begin_round()
        if self._late:
            self.batch.forget_keys()
            self._late = False
        for cache, spec in passes:  # text that a schedule has left behind
            settle(self, cache, spec)
        ready.lookups.run()
        ready = ready.fitting(self.batch.done)
        used = max(self.batch.lengths) + self.analysis.speculative
        result = self._take(self._report(ready, used).tolist(), ready.graph.inputs)
        for cache in blind:
            cache.lengths = {span: [0] * self.batch.size for span in cache.segments}
        for there in known:
            there.fill_(True)
        if observer is not None:
            seconds = perf_counter() - start
            op = "round" + outcome_words(ready.graph.outcome)
            observer(op, None, self.batch.size, 1, used, seconds)
        return result

    def take_in(self, cache: Cache, spec: PassSpec, pending: int = 1) -> None:
        """See `Interpreter.take_in`; the text of one request runs compiled, where that can be."""
        if spec.features is not None and not spec.own and fills(self, spec):
            self.programs.fill(self.batch, cache, spec, pending)
        elif not spec.keeps and spec.features is None:
            self.programs.read_text(self.batch, cache, spec, pending)
        super().take_in(cache, spec, pending)

    def _interpreted(self, graph: RoundGraph, known: Sequence[Tensor]) -> StepResult:
        """Let the interpreter run a round whose passes read more text than a graph has room for.

        Args:
            graph: the round.
            known: marks of states to set behind it.
        """
        batch, analysis = self.batch, self.analysis
        if not self._late:
            states = {str(s.name): s for s in analysis.plan.states if isinstance(s, ValueState)}
            batch.values = {
                name: value_of(states[name], graph.interface.parts(states[name].name), parts)
                for name, parts in self.values.items()
            }
        step, self._late = super().step(graph.item.name), False
        for there in known:
            there.fill_(True)
        self.values = first_values(batch, analysis, self.models["target"])
        batch.forget_keys()
        self._rounds.clear()  # they know the tensors of the values before
        return StepResult(step.tokens[: self.size])

    def _report(self, ready: HostRound, used: int) -> Tensor:
        """Run a round; its report."""
        graph, device, most = ready.graph, self.batch.device, self.batch.text.shape[1] - 1
        captured = device.type in self.programs.captured_on
        if captured:
            used = slots_attended(used, most, graph.masked)
        elif graph.fused.joined:  # the same tensor for some rounds: behind a text it reads nothing
            used = min(-(-used // SLOTS_STEP) * SLOTS_STEP, most)
        self._write(ready)
        given = ready.given = ready.given or self._tensors(ready).flat()
        if used != ready.used:
            given[SLOTS_PLACE], ready.used = self._order[:used], used
        if ready.program is not None:
            return ready.program(*given)
        form = graph.item.name, graph.outcome
        slots, known = self._captured.get(form, (0, None))
        if known is not None and slots == used:
            return known(*given)
        placed = given if device.type == "cpu" else [tensor.to(device) for tensor in given]
        program = self.programs.program(graph, self.bucket, placed)
        if not captured or program is graph:  # op by op the host would be waited for
            ready.program = program if device.type == "cpu" else None
            return program(*placed)
        made = CapturedRound(program, device)
        # In place of the one for fewer slots, whose memory is free then: texts only grow.
        self._captured[form] = used, made
        return made(*given)

    def _ready(self, name: str) -> HostRound:
        """A round of this batch, before its first call."""
        forms = self.programs.forms(name, self.sampling)
        whole = forms[None]
        lookups = Lookups(self, whole.inputs.first, whole.inputs.read)
        made = self._rounds[name] = HostRound.of(whole, self.batch, lookups)
        for outcome, graph in forms.items():
            if outcome is not None and self.programs.has(graph, self.bucket):
                part = lookups.part(graph.inputs.first)
                made.forms[outcome] = HostRound.of(graph, self.batch, part)
        if self.programs.in_turn:
            made.take_turns()
        return made

    @torch.inference_mode()
    def prepare(self, name: str) -> None:
        """Run a round's forms, and take nothing of what they report."""
        ready = self._rounds.get(name) or self._ready(name)
        ready.lookups.run()
        for form in ready.forms.values():
            form.lookups.run()
            self._report(form, max(self.batch.lengths) + self.analysis.speculative)

    def _tensors(self, ready: HostRound) -> RoundTensors:
        """What the host writes for each round is on the CPU, all else on the device.

        Tensors stay the same from round to round, so that they stay bound.
        """
        batch = self.batch
        tokens, parents, live = ready.lookups.results
        return RoundTensors(
            text=batch.text,
            prompts=self._prompts,
            lengths=self._lengths,
            limits=self._limits,
            stops=self._stops,
            done=self._done,
            temperature=batch.settings.temperature,
            top_k=batch.settings.top_k,
            top_p=batch.settings.top_p,
            uniforms=ready.uniforms,
            lookup_tokens=tokens,
            lookup_parents=parents,
            lookup_live=live,
            slots=self._order,
            resident=self._resident,
            stores={name: cache.store for name, cache in batch.caches.items()},
            tracks={name: track.parts() for name, track in batch.tracks.items()},
            values=self.values,
        )

    def _write(self, ready: HostRound) -> None:
        """Write what the host knows before a round into the tensors that it reads."""
        batch = self.batch
        self._host_lengths[:] = batch.lengths
        self._host_done[:] = batch.done
        for resident, cache in self._host_resident:
            for segment, lengths in enumerate(cache.lengths.values()):
                resident[:, segment] = lengths
        for op, first, times in ready.graph.inputs.uniforms:
            count = op.count * times
            numbers = numbers_of(op.key)(batch.seeds, op.stream, batch.lengths, op.offset, count)
            ready.uniforms.numpy()[:, first : first + count] = numbers.numpy()

    def _take(self, lines: list[list[int]], inputs: HostInputs) -> StepResult:
        """Update the batch by a round's report, one line per request.

        Raises:
            UsageError: one of the formulas had no value for a request; names it.
        """
        batch = self.batch
        ends = len(lines[0]) - sum(one.numbers for one in inputs.lessons)
        width = ends - 2 - len(self._segments)
        for row, line in enumerate(lines):
            if line[width + 1] > 1:
                where = f'"{inputs.formulas[line[width + 1] // 2 - 1]}"'
                raise UsageError(f"the formula has no value for request {row}", where=where)
        if inputs.lessons:
            learned = torch.tensor([line[ends:] for line in lines])
            teach(self.batch, inputs.lessons, learned)
        batch.grown([line[width] for line in lines], [bool(line[width + 1]) for line in lines])
        for place, (cache, span) in enumerate(self._segments, width + 2):
            cache.lengths[span] = [line[place] for line in lines]
        return StepResult([line[: line[width]] for line in lines[: self.size]])
