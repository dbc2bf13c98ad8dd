"""A plan whose rounds are graphs, made when they are first needed, bound to its models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from torch import Tensor

from specplan.backends.binding import BoundPlan, check_requests
from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.passes.text import took_in
from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.batch import MOST_CHUNK, Batch
from specplan.backends.eager.state.caches import Cache
from specplan.backends.static.buckets import Bucket, Sampling, bucket_for
from specplan.backends.static.fusing import fused_for
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.session import Program, States, StaticSession, TextProgram
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import Plan
from specplan.ir.types.matching import deciding_lookups, outcomes_of, specialized
from specplan.passes.pipeline import run_passes
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request

Keeps: TypeAlias = Sequence[tuple[Tensor, tuple[int, ...]]]
"""Rows by their position, and after how many layers each of their parts is."""
Compile: TypeAlias = Callable[[RoundGraph, Bucket, Sequence[Tensor]], Program]
"""Makes a program of a graph, for tensors of the shapes of those given."""


class StaticExecutable(BoundPlan):
    """A plan bound to its models.

    Args:
        plan: one that the interpreter runs.
        models: by the names the plan gives them.
        compile_round: makes a program of a graph; None runs graphs eagerly.
        buckets: shapes to fit batches into; shapes are made as they are needed when none fits.
        fused_on: kinds of device on which parts of a round are kernels of our own.
        captured_on: kinds of device on which rounds are captured in CUDA graphs; programs must be
            such as can be.
        joined: models whose attention is one op of the runtime; see `Fused`.
        text_program: see `RoundBackend.text_program`; None interprets all prompts.
        has: whether there is a program of a graph for a bucket, or will be: what only saves time
            runs where there is.

    Attributes:
        used_caches: those of the batch that ended last, for the next one of its shape: memory that
            is zero is dear to get, and what is bound to programs stays bound.
        in_turn: forms of a round run in turn, whatever its lookups match, as those that are priced.
    """

    def __init__(
        self,
        plan: Plan,
        models: Mapping[str, Module],
        compile_round: Compile | None = None,
        buckets: Sequence[Bucket] = (),
        fused_on: Collection[str] = (),
        captured_on: Collection[str] = (),
        joined: Collection[str] = (),
        text_program: Callable[..., TextProgram | None] | None = None,
        has: Callable[[RoundGraph, Bucket], bool] = lambda graph, bucket: True,
    ) -> None:
        super().__init__(plan, models)
        self.lowered = run_passes(plan)
        self.analysis = PlanAnalysis(self.lowered, models)
        self.buckets = list(buckets)
        self.fused = replace(fused_for(models, fused_on), joined=frozenset(joined))
        self.captured_on = frozenset(captured_on)
        self._compile = compile_round
        self._text_program = text_program
        self._texts: dict[tuple[str, int, States], TextProgram | None] = {}
        self.has = has
        self.in_turn = False
        self.used_caches: dict[Bucket, dict[str, KVCache]] = {}
        self._graphs: dict[tuple[str, Sampling, int | None], RoundGraph | None] = {}
        self._programs: dict[tuple[RoundGraph, Bucket], Program] = {}

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> StaticSession:
        """Begin a batch: check the requests and make room for them.

        Args:
            requests: at least one; each prompt has at least one token.
            capacity: tokens of text per row to make room for; what the requests need when None.

        Raises:
            UsageError: names the request and what is wrong with it.
            MissingCapabilityError: a request has a grammar.
        """
        check_requests(self.plan, self.models, requests)
        if any(request.grammar is not None for request in requests):
            raise MissingCapabilityError(
                "a round that is one graph cannot ask the parser of a grammar between its ops",
                where=f"plan {self.plan.name}",
                remedy="Run the plan op by op: backend eager.",
            )
        bucket = bucket_for(requests, capacity, self.buckets)
        return StaticSession(self, requests, bucket)

    def text_program(self, name: str, slots: int, after: States = ()) -> TextProgram | None:
        """See `RoundBackend.text_program`; made when first asked for."""
        if self._text_program is None:
            return None
        key = name, slots, after
        if key not in self._texts:
            self._texts[key] = self._text_program(name, self.models[name], slots, after)
        return self._texts[key]

    def read_text(
        self, batch: Batch, cache: Cache, spec: PassSpec, pending: int, keeps: Keeps = ()
    ) -> bool:
        """Take one text in, chunk by chunk, where the backend can, but for its last tokens.

        Args:
            batch: of the text.
            cache: of the model.
            spec: how text runs through it.
            pending: tokens that are left.
            keeps: where states go, and after how many layers the parts of each are.

        Returns:
            Whether it ran.
        """
        program = self._text_of(batch, cache, spec, tuple(layers for _, layers in keeps))
        if program is None:
            return False
        for start, stop in _chunks(batch, cache, spec, pending):
            states = [rows[start:stop] for rows, _ in keeps]
            program(batch.text[:, start:stop], start, cache.store, states=states)
            took_in([stop], cache, spec, None)
        return True

    def fill(self, batch: Batch, cache: Cache, spec: PassSpec, pending: int) -> None:
        """The same into the cache of a head, as far as the states that it reads are there."""
        program = self._text_of(batch, cache, spec, ())
        track, above = batch.tracks[str(spec.features)], spec.shift
        if program is None or not track.known[0, 0]:
            return
        for start, stop in _chunks(batch, cache, spec, pending):
            if start < above:  # nothing stands above the first tokens
                stop = min(stop, above)
                features = track.text.new_zeros(stop - start, track.text.shape[2])
            else:
                rows = slice(start - above, stop - above)
                if not track.known[0, rows].all():
                    return
                features = track.text[0, rows]
            program(batch.text[:, start:stop], start, cache.store, features)
            took_in([stop], cache, spec, None)

    def _text_of(
        self, batch: Batch, cache: Cache, spec: PassSpec, after: States
    ) -> TextProgram | None:
        """What runs text as `spec` does; None where nothing does, or several requests run."""
        whole = spec.spans == ((0, self.models[spec.model].num_layers),) and not spec.skips
        plain = cache.retention is None and cache.store.queries is None and cache.of is None
        if batch.size != 1 or spec.scratch or not (whole and plain):
            return None
        return self.text_program(spec.model, cache.store.capacity + 1, after)

    def read_ahead(self, batch: Batch) -> list[Tensor]:
        """Take a prompt into models whose states other models read, and keep the states.

        Returns:
            Marks to set behind the first round: a round that reads the prompt itself has its
            states only in the end.
        """
        known: list[Tensor] = []
        for name in self.analysis.read_by_others:
            cache, spec = batch.caches[name], self.analysis.whole[name]
            if spec.segments != spec.spans:
                continue
            depth = self.models[spec.model].num_layers
            tracks = [(batch.tracks[track], layers) for track, layers in spec.keeps]
            keeps = [
                (track.text[0], tuple(depth if layer < 0 else layer for layer in layers))
                for track, layers in tracks
            ]
            start = cache.lengths[spec.segments[0]][0]
            if self.read_text(batch, cache, spec, 1, keeps):
                stop = cache.lengths[spec.segments[0]][0]
                known += [track.known[0, start:stop] for track, _ in tracks]
        return known

    def blind(self, batch: Batch) -> list[Cache] | None:
        """Caches of heads that cannot run in the first round, whose states are not there yet.

        None where another cache lacks text of the prompt, which the round has to read.
        """
        blind, lengths = [], batch.lengths
        for name, cache in batch.caches.items():
            if all(
                length <= 1 + done
                for span in cache.segments
                for length, done in zip(lengths, cache.lengths[span], strict=True)
            ):
                continue
            model = self.analysis.whole[name].model
            specs = [one for one in self.analysis.pass_specs.values() if one.model == model]
            if self.models[model].optional_features or not all(one.features for one in specs):
                return None
            blind.append(cache)
        return blind

    def forms(self, name: str, sampling: Sampling) -> dict[int | None, RoundGraph]:
        """A round by `RoundGraph.outcome`: itself, and its forms for what its lookups match."""
        outcomes = (None, *outcomes_of(self.lowered.round(name)))
        forms = ((outcome, self._graph(name, sampling, outcome)) for outcome in outcomes)
        return {outcome: graph for outcome, graph in forms if graph is not None}

    def _graph(self, name: str, sampling: Sampling, outcome: int | None) -> RoundGraph | None:
        key = name, sampling, outcome
        if key not in self._graphs:
            plan, analysis = self.lowered, self.analysis
            if outcome is not None:
                form = specialized(plan, name, outcome)
                if form is None:
                    return self._graphs.setdefault(key, None)
                plan = run_passes(form)
                analysis = PlanAnalysis(plan, self.models)
            given = analysis, plan.round(name), self.models, sampling, self.fused, outcome
            self._graphs[key] = RoundGraph(*given)
        return self._graphs[key]

    def prepare(self, requests: Sequence[Request]) -> None:
        """Make the programs of what a batch such as this one may need, and its rounds may not."""
        names = [one.name for one in self.lowered.rounds if deciding_lookups(one)]
        if names:
            session = self.start(requests)
            session.prefill()
            for name in names:
                session.prepare(name)
            session.release()

    def program(self, graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> Program:
        """What runs a graph on a bucket's tensors; it is made on first use."""
        if self._compile is None:
            return graph
        key = (graph, bucket)
        if key not in self._programs:
            self._programs[key] = self._compile(graph, bucket, tensors)
        return self._programs[key]


def _chunks(batch: Batch, cache: Cache, spec: PassSpec, pending: int) -> Iterator[tuple[int, int]]:
    """Parts of the one text that a cache lacks, but for its last tokens; each is to be run."""
    stop = batch.lengths[0] - pending
    while (start := min(cache.lengths[span][0] for span in spec.segments)) < stop:
        yield start, min(start + MOST_CHUNK, stop)
