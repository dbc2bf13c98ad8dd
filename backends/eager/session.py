"""The interpreter: rounds run op by op on a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specplan.backends.eager import regions, sources
from specplan.backends.eager.batch import Batch
from specplan.backends.eager.forward import catch_up, run_forward
from specplan.backends.eager.prepared import Prepared
from specplan.backends.eager.values import Scope, held_as, nodes_as
from specplan.backends.ops.accept import accept
from specplan.backends.ops.adopt import adopt
from specplan.backends.ops.graft import graft
from specplan.backends.ops.grow import grow
from specplan.backends.ops.lookup import lookup
from specplan.backends.ops.measure import measure
from specplan.backends.ops.mix import mix
from specplan.backends.ops.pick import pick
from specplan.backends.ops.place import place
from specplan.backends.ops.prune import prune
from specplan.backends.ops.relabel import relabel
from specplan.backends.ops.reroot import reroot
from specplan.backends.ops.values import Path, Rows, Tree, as_given, counts_of, padded_to, rehung
from specplan.backends.reference import lanes
from specplan.backends.reference.observed import Observed
from specplan.backends.reference.scalars import compute
from specplan.ir import ops as ir
from specplan.ir.types import NodesType, TreeType, Type
from specplan.ir.values import State
from specplan.runtime.executable import Observer, StepResult, forward_variant
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sources.source import Source
from specplan.runtime.sources.use import sources_of_batch
from specplan.runtime.uniforms import numbers_of

MOST_CHUNK = 512
"""Text that is run in one pass at most."""


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
        models: Mapping[str, CausalModel],
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
        self.batch.add_states(plan.states, models, prepared.segments, prepared.plain, self.scores)
        self.whole = prepared.whole
        self.emitted: list[list[int]] = []
        self.constants: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
        self.trip = 0
        self.active: list[bool] | None = None
        self.trips: list[Tensor] = []
        self.loops: list[Any] = []
        self.observer: Observer | None = None
        self.observed = Observed()

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
        return self.batch.text[row, : self.batch.lengths[row]].tolist()

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

        Models that read another one's states catch up in the first round.
        """
        for name, cache in self.batch.caches.items():
            if cache.of is not None:
                cache.refresh()
                continue
            stretch = self.whole.get(name)
            if stretch is None:
                continue
            start = perf_counter()
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
            if self.observer is None or isinstance(op, ir.Repeat | ir.Segment | ir.When):
                _OPS[type(op)](self, op, scope)
            else:
                self._observe(self.observer, op, scope)
            for name in self.prepared.spent.get(id(op), ()):
                scope.pop(name, None)

    def _observe(self, observer: Observer, op: ir.Op, scope: Scope) -> None:
        """Run one op, and tell how long it took."""
        self.observed = Observed()
        start = perf_counter()
        _OPS[type(op)](self, op, scope)
        seconds = perf_counter() - start
        seen = self.observed
        name = f"{op.keyword}:{seen.variant}" if seen.variant else op.keyword
        observer(name, seen.model, self.batch.size, seen.width, seen.context, seconds)

    def gives(self, op: ir.Op) -> Type:
        """What the verifier knows of an op's result, on this trip."""
        return self.prepared.types[id(op), self.trip][0]

    def tree_type(self, op: ir.Op) -> TreeType:
        """The same of an op that gives a tree."""
        return held_as(self.gives(op), TreeType)

    def _root(self, op: ir.Root, scope: Scope) -> None:
        scope[op.results[0]] = self.batch.root(self.scores)

    def _grow(self, op: ir.Grow, scope: Scope) -> None:
        tree = held_as(scope[op.tree], Tree)
        grown = grow(
            op, tree, nodes_as(scope[op.at]), held_as(scope[op.logits], Rows),
            None if op.by is None else held_as(scope[op.by], Tensor),
            settings=self.batch.settings, chain=self.tree_type(op).is_chain,
            remembers=self.prepared.mixes,
        )  # fmt: skip
        self.observed = Observed(variant=op.how, width=grown.size - tree.size)
        scope[op.results[0]] = grown

    def _lookup(self, op: ir.Lookup, scope: Scope) -> None:
        tree, at = held_as(scope[op.tree], Tree), nodes_as(scope[op.at])
        wanted = sources.wanted_of(op, at.width)
        grown = lookup(
            tree, at, sources.asked(self.batch, op, at, wanted),
            counts=counts_of(op.children, at.width), length=op.length,
            merged=wanted.nodes is not None, chain=self.tree_type(op).is_chain,
        )  # fmt: skip
        self.observed = Observed(self._kind(op.source), width=grown.size - tree.size)
        scope[op.results[0]] = grown

    def _update(self, op: ir.Update, scope: Scope) -> None:
        self.observed = Observed(self._kind(op.source))
        rows = None if op.logits is None else held_as(scope[op.logits], Rows)
        sources.update(self.batch, op, held_as(scope[op.tree], Tree), rows)

    def _kind(self, source: str) -> str:
        """What a source is called among sources; "" for the text."""
        return self.batch.sources[source].kind if source in self.batch.sources else ""

    def _graft(self, op: ir.Graft, scope: Scope) -> None:
        trees = [held_as(scope[name], Tree) for name in op.trees]
        joined = graft(op, trees, chain=self.tree_type(op).is_chain)
        self.observed = Observed(variant=op.same, width=max(1, joined.size))
        scope[op.results[0]] = joined

    def _pick(self, op: ir.Pick, scope: Scope) -> None:
        tree = held_as(scope[op.tree], Tree)
        if op.best is not None:
            among = tree.size if op.of == "all" else len(tree.newest)
            self.observed = Observed(variant="best", width=among)
        scope[op.results[0]] = pick(
            op, tree, None if op.at is None else nodes_as(scope[op.at]),
            None if op.count is None else held_as(scope[op.count], Tensor),
            kind=held_as(self.gives(op), NodesType),
        )  # fmt: skip

    def _prune(self, op: ir.Prune, scope: Scope) -> None:
        chosen = self.prepared.read(op, self.trip, op.to)
        pruned = prune(
            held_as(scope[op.tree], Tree), nodes_as(scope[op.to]), kind=self.tree_type(op),
            chosen=chosen if isinstance(chosen, NodesType) else None,
        )  # fmt: skip
        self._worked(pruned)
        scope[op.results[0]] = pruned

    def _place(self, op: ir.Place, scope: Scope) -> None:
        tree, at = held_as(scope[op.tree], Tree), nodes_as(scope[op.at])
        placed = place(op, tree, at, chain=self.tree_type(op).is_chain)
        self._worked(placed)
        scope[op.results[0]] = placed

    def _relabel(self, op: ir.Relabel, scope: Scope) -> None:
        tree = held_as(scope[op.tree], Tree)
        self._worked(tree)
        scope[op.results[0]] = relabel(
            op, tree, None if op.logits is None else held_as(scope[op.logits], Rows),
            None if op.other is None else held_as(scope[op.other], Tree),
            None if op.at is None else nodes_as(scope[op.at]),
        )  # fmt: skip

    def _reroot(self, op: ir.Reroot, scope: Scope) -> None:
        tree, now = held_as(scope[op.tree], Tree), self.batch.root(None)
        self._worked(tree)
        scope[op.results[0]] = reroot(tree, now.keys, now.tokens, kind=self.tree_type(op))

    def _adopt(self, op: ir.Adopt, scope: Scope) -> None:
        tree, path = held_as(scope[op.tree], Tree), held_as(scope[op.path], Path)
        rows = held_as(scope[op.logits], Rows)
        longer = adopt(tree, path, rows, settings=self.batch.settings, kind=self.tree_type(op))
        self._worked(longer)
        scope[op.results[0]] = longer

    def _forward(self, op: ir.Forward, scope: Scope) -> None:
        stretch = self.prepared.stretches[id(op)]
        place = self.prepared.placements.get((id(op), self.trip))
        ran = run_forward(self, stretch, [nodes_as(scope[name]) for name in op.nodes], place)
        span = stretch.spans[0] if op.layers else None
        variant = forward_variant(span, bool(stretch.gives), stretch.skips.words)
        self.observed = Observed(variant, op.model, ran.width, ran.context)
        scope.update(zip(op.results, ran.rows, strict=True))

    def _mix(self, op: ir.Mix, scope: Scope) -> None:
        operands = [scope[name] for name in op.logits]
        weights = [held_as(scope[name], Tensor) for name in op.weights]
        scope[op.results[0]] = mix(op, operands, weights)

    def _uniform(self, op: ir.Uniform, scope: Scope) -> None:
        offset = op.offset + self.trip * op.count
        starts = self.batch.starts
        drawn = numbers_of(op.key)(self.batch.seeds, op.stream, starts, offset, op.count)
        scope[op.results[0]] = drawn.to(self.batch.device)

    def _accept(self, op: ir.Accept, scope: Scope) -> None:
        tree = held_as(scope[op.tree], Tree)
        self.observed = Observed(variant=op.rule.name, width=tree.size)
        scope[op.results[0]] = accept(
            op, tree, None if op.target is None else held_as(scope[op.target], Rows),
            None if op.by is None else held_as(scope[op.by], Tensor),
            None if op.at is None else nodes_as(scope[op.at]),
            settings=self.batch.settings, most=self.prepared.judged.get(id(op), tree.size),
        )  # fmt: skip

    def _emit(self, op: ir.Emit, scope: Scope) -> None:
        path = held_as(scope[op.path], Path)
        tokens, counts = path.tokens.tolist(), path.counts.tolist()
        for row, count in enumerate(counts):
            self.emitted[row] += self.batch.append(row, tokens[row][:count])
        scope[op.results[0]] = path

    def _commit(self, op: ir.Commit, scope: Scope) -> None:
        batch, path = self.batch, held_as(scope[op.path], Path)
        self.observed = Observed(variant="chain" if path.chain else "tree")
        starts = torch.tensor(batch.starts, device=batch.device)[:, None]
        longest = max(map(int.__sub__, batch.lengths, batch.starts))
        positions = starts + torch.arange(longest, device=batch.device)
        emitted = positions < batch.ends
        keys = batch.keys.gather(1, positions.clamp(max=batch.keys.shape[1] - 1))
        if op.state in batch.tracks:
            batch.tracks[op.state].commit(keys, emitted, positions)
            return
        alive = None if op.alive is None else held_as(scope[op.alive], Tree)
        inner = None
        if alive is not None:
            inner = alive.everything if not alive.size else nodes_below(alive)
        batch.caches[op.state].commit(keys, emitted, batch.lengths, inner)

    def _load(self, op: ir.Load, scope: Scope) -> None:
        held = self.batch.values[op.state]
        if isinstance(held, Tree):
            self._worked(held)
            root = self.batch.root(self.scores)
            tokens = torch.cat([root.tokens, held.tokens[:, 1:]], 1)
            held = rehung(_with_tokens(held, tokens), root.keys)
        scope[op.results[0]] = held

    def _store(self, op: ir.Store, scope: Scope) -> None:
        held, known = scope[op.value], self.batch.values[op.state]
        if isinstance(held, Tree) and isinstance(known, Tree):
            held = padded_to(held, known.columns)
            if op.state not in self.prepared.drawn:
                held = as_given(held)
        assert isinstance(held, Tree | Tensor)
        self.batch.values[op.state] = held

    def _refresh(self, op: ir.Refresh, scope: Scope) -> None:
        cache = self.batch.caches[op.state]
        cache.refresh()
        kept = cache.kept
        if kept is not None:
            longest = max(cache.whole)
            width = -(-longest // kept.retrieved) if kept.retrieved else kept.budget
            name = "retrieved" if kept.retrieved else "sink_recent"
            self.observed = Observed(name, width=width)

    def _measure(self, op: ir.Measure, scope: Scope) -> None:
        if isinstance(op.operand, State):
            scope[op.results[0]] = self._lag(op.operand, op.kind.get("layers"))
            return
        operand: Any = scope[op.operand]
        width = 1
        if op.variant and isinstance(operand, Tree):
            width = max(1, operand.size)
        elif op.variant and not isinstance(operand, Rows):
            width = max(1, operand.width)
        self.observed = Observed(op.variant, width=width)
        scope[op.results[0]] = measure(operand, op.kind).cpu()

    def _lag(self, state: State, layers: Any) -> Tensor:
        """Text tokens that some of a cache's layers lack."""
        cache = self.batch.caches[state]
        inside = [
            known for (start, stop), known in cache.lengths.items()
            if start < layers.stop and stop > layers.start
        ]  # fmt: skip
        least = list(map(min, *inside)) if len(inside) > 1 else inside[0]
        lag = [now - done for now, done in zip(self.batch.lengths, least, strict=True)]
        return torch.tensor(lag, dtype=torch.float64)

    def _compute(self, op: ir.Compute, scope: Scope) -> None:
        operands = {name: held_as(scope[value], Tensor) for name, value in op.operands}
        idle = partial(_is_idle, self)
        scope[op.results[0]] = compute(op.formula, operands, self.batch.size, idle)

    def _worked(self, tree: Tree) -> None:
        self.observed = Observed(width=max(1, tree.size))


def nodes_below(tree: Tree) -> Any:
    """All nodes of a tree but the root."""
    from specplan.backends.ops.values import Nodes

    return Nodes(tree, range(1, tree.columns), root=False)


def _with_tokens(tree: Tree, tokens: Tensor) -> Tree:
    from dataclasses import replace

    return replace(tree, tokens=tokens)


def _is_idle(session: EagerSession, row: int) -> bool:
    """Whether a request is done, or has stopped in a loop that runs on for others."""
    return session.idle_rows[row] or not all(bool(loop.running[row]) for loop in session.loops)


_OPS: dict[type, Callable[[EagerSession, Any, Scope], None]] = {
    ir.Root: EagerSession._root,
    ir.Grow: EagerSession._grow,
    ir.Lookup: EagerSession._lookup,
    ir.Update: EagerSession._update,
    ir.Graft: EagerSession._graft,
    ir.Pick: EagerSession._pick,
    ir.Prune: EagerSession._prune,
    ir.Place: EagerSession._place,
    ir.Relabel: EagerSession._relabel,
    ir.Reroot: EagerSession._reroot,
    ir.Adopt: EagerSession._adopt,
    ir.Forward: EagerSession._forward,
    ir.Mix: EagerSession._mix,
    ir.Uniform: EagerSession._uniform,
    ir.Accept: EagerSession._accept,
    ir.Emit: EagerSession._emit,
    ir.Commit: EagerSession._commit,
    ir.Load: EagerSession._load,
    ir.Store: EagerSession._store,
    ir.Refresh: EagerSession._refresh,
    ir.Measure: EagerSession._measure,
    ir.Compute: EagerSession._compute,
    ir.Repeat: regions.repeat,
    ir.When: regions.when,
    ir.Segment: lanes.segment,
}
