"""The interpreter: rounds run op by op, eagerly, on a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specplan.backends.reference import (
    choosing,
    growing,
    joining,
    judging,
    lanes,
    lengthening,
    looking,
    stopping,
)
from specplan.backends.reference.batch import Batch
from specplan.backends.reference.carried_ops import CARRIED
from specplan.backends.reference.carrying import numbered_from
from specplan.backends.reference.forward import run_forward
from specplan.backends.reference.observed import Observed
from specplan.backends.reference.one_pass import pending_of, stretch_of
from specplan.backends.reference.values import Path, Rows, Scope, Tree, held_as, nodes_as
from specplan.ir.lifetimes import last_reads
from specplan.ir.ops import (
    Accept,
    Adopt,
    Commit,
    Emit,
    Forward,
    Graft,
    Grow,
    Lookup,
    Op,
    Pick,
    Prune,
    Repeat,
    Root,
    Segment,
    Uniform,
    Update,
    When,
)
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.values import State, Value
from specplan.runtime.executable import Observer, StepResult, forward_variant
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sources.source import Source
from specplan.runtime.sources.use import sources_of_batch
from specplan.runtime.uniforms import numbers_of


class ReferenceSession:
    """One batch decoding under a plan."""

    def __init__(
        self,
        plan: Plan,
        models: Mapping[str, CausalModel],
        requests: Sequence[Request],
        shared: Mapping[str, Source],
        speculative: int,
        capacity: int | None,
        side_by_side: bool | None = None,
    ) -> None:
        self.plan = plan
        self.lanes = lanes.lanes_of(plan, models)
        self.side_by_side = side_by_side
        self.ahead: set[int] = set()
        self.spent = last_reads(plan)
        self.scored = any(map(choosing.reads_scores, walk_plan(plan)))
        sources = sources_of_batch(plan, models["target"].vocab_size, shared, requests)
        self.batch = Batch(requests, models, plan.states, sources, speculative, capacity)
        self.emitted: Path | None = None
        self.trip = 0
        self.families = 0
        self.trips: list[Tensor] = []
        self.loops: list[stopping.Stops] = []
        self.judged = stopping.judged_nodes(plan)
        self.observer: Observer | None = None
        self.observed = Observed()

    @property
    def done(self) -> list[bool]:
        """Rows that want no more tokens."""
        return self.batch.done

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
        looking.close(self.batch.text, self.batch.lengths, self.batch.sources)
        self.batch.caches.clear()
        self.batch.tracks.clear()

    @torch.inference_mode()
    def prefill(self, observer: Observer | None = None) -> None:
        """Run the prompts, all but the last token, through every model that keeps a cache."""
        self.batch.prefill(observer)

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
        self.emitted = None
        self.families = 0
        self.trips = []
        self.loops = []
        self.run(self.plan.round(round_name).ops, {})
        nothing: list[list[int]] = [[]] * self.batch.size
        kept = self.emitted.tokens if self.emitted is not None else nothing
        counts = [len(row) for row in kept]
        width = max(1, *counts)
        tokens = torch.tensor([row + [-1] * (width - len(row)) for row in kept])
        trips = torch.stack(self.trips, 1) if self.trips else None
        return StepResult(tokens=tokens, counts=torch.tensor(counts), trips=trips)

    def run(self, ops: tuple[Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""
        for op in ops:
            if self.observer is None or isinstance(op, Repeat | Segment | When):
                _OPS[type(op)](self, op, scope)
            else:
                self.observe(self.observer, op, scope)
            for name in self.spent.get(id(op), ()):
                scope.pop(name, None)

    def observe(self, observer: Observer, op: Op, scope: Scope) -> None:
        """Run one op, and tell how long it took."""
        self.observed = Observed()
        start = perf_counter()
        _OPS[type(op)](self, op, scope)
        seconds = perf_counter() - start
        seen = self.observed
        name = f"{op.keyword}:{seen.variant}" if seen.variant else op.keyword
        observer(name, seen.model, self.batch.size, seen.width, seen.context, seconds)

    def root(self, op: Root, scope: Scope) -> None:
        """The tree without drafted nodes."""
        scope[op.results[0]] = self.apart(Tree(self.batch.text[:, :0]))

    def grow(self, op: Grow, scope: Scope) -> None:
        """Children below nodes."""
        tree = held_as(scope, op.tree, Tree)
        by = None if op.by is None else held_as(scope, op.by, Tensor)
        at, rows = nodes_as(scope, op.at), held_as(scope, op.logits, Rows)
        grown = growing.grow(self.batch.settings, op, tree, at, rows, by, scored=self.scored)
        self.observed = Observed(variant=op.how, width=grown.size - tree.size)
        scope[op.results[0]] = grown

    def lookup(self, op: Lookup, scope: Scope) -> None:
        """Continuations found in the text itself or in a source."""
        tree = held_as(scope, op.tree, Tree)
        grown = looking.lookup(self.batch, op, tree, nodes_as(scope, op.at), scored=self.scored)
        self.observed = Observed(looking.kind(self.batch, op.source), width=grown.size - tree.size)
        scope[op.results[0]] = grown

    def update(self, op: Update, scope: Scope) -> None:
        """Teach a source."""
        self.observed = Observed(looking.kind(self.batch, op.source))
        rows = None if op.logits is None else held_as(scope, op.logits, Rows)
        looking.update(self.batch, op, held_as(scope, op.tree, Tree), rows)

    def graft(self, op: Graft, scope: Scope) -> None:
        """Trees joined at the root."""
        joined = joining.graft(op, [held_as(scope, name, Tree) for name in op.trees])
        self.observed = Observed(variant=op.same, width=max(1, joined.size))
        scope[op.results[0]] = joined

    def pick(self, op: Pick, scope: Scope) -> None:
        """Some nodes of a tree."""
        tree = held_as(scope, op.tree, Tree)
        if op.best is not None:
            among = tree.size if op.of == "all" else len(tree.newest)
            self.observed = Observed(variant="best", width=among)
        at = None if op.at is None else nodes_as(scope, op.at)
        scope[op.results[0]] = choosing.pick(op, tree, at)

    def prune(self, op: Prune, scope: Scope) -> None:
        """The nodes that were chosen, and their ancestors."""
        pruned = choosing.prune(held_as(scope, op.tree, Tree), nodes_as(scope, op.to))
        self.observed = Observed(width=max(1, pruned.size))
        scope[op.results[0]] = pruned

    def forward(self, op: Forward, scope: Scope) -> None:
        """A model on nodes."""
        pending = pending_of(op)
        cache = self.batch.caches[op.cache or State("")]
        stretch = stretch_of(op, cache.num_layers, self.batch.tracks)
        trees = [nodes_as(scope, name) for name in op.nodes]
        rows, call = run_forward(self.batch, cache, trees, pending, stretch)
        span = stretch.layers if op.layers else None
        variant = forward_variant(span, stretch.logits, stretch.skips.words)
        self.observed = Observed(variant, op.model, call.tokens.shape[1], call.mask.shape[2])
        scope.update(zip(op.results, rows, strict=True))

    def uniform(self, op: Uniform, scope: Scope) -> None:
        """Numbers of the requests' own streams."""
        offset = op.offset + self.trip * op.count
        drawn = numbers_of(op.key)(self.batch.seeds, op.stream, self.batch.starts, offset, op.count)
        scope[op.results[0]] = drawn.to(self.batch.device)

    def accept(self, op: Accept, scope: Scope) -> None:
        """Judge a tree."""
        tree = held_as(scope, op.tree, Tree)
        rows = held_as(scope, op.target or Value(""), Rows)
        by = None if op.by is None else held_as(scope, op.by, Tensor)
        if by is not None and id(op) in self.judged:
            by = stopping.with_bonus(by, tree.size, self.judged[id(op)])
        self.observed = Observed(variant=op.rule.name, width=tree.size)
        accept = judging.accept if op.at is None else judging.accept_below
        scope[op.results[0]] = accept(self.batch, op, tree, rows, by)

    def adopt(self, op: Adopt, scope: Scope) -> None:
        """A path judged within the round becomes drafted nodes."""
        tree, path = held_as(scope, op.tree, Tree), held_as(scope, op.path, Path)
        rows = held_as(scope, op.logits or Value(""), Rows)
        longer = lengthening.adopt(self.batch.settings, tree, path, rows)
        self.observed = Observed(width=longer.size)
        scope[op.results[0]] = longer

    def emit(self, op: Emit, scope: Scope) -> None:
        """Append to the text."""
        self.emitted = judging.emit(self.batch, held_as(scope, op.path, Path))
        scope[op.results[0]] = self.emitted

    def commit(self, op: Commit, scope: Scope) -> None:
        """Keep what was emitted."""
        path = held_as(scope, op.path, Path)
        self.observed = Observed(variant="chain" if path.chain else "tree")
        if op.state in self.batch.tracks:
            judging.commit_track(self.batch, self.batch.tracks[op.state], path)
        else:
            judging.commit(self.batch.caches[op.state], path)

    def worked(self, nodes: int, variant: str = "") -> None:
        """Tell the observer how many nodes an op works on, and of which kind it is."""
        self.observed = Observed(variant, width=nodes)

    def apart(self, tree: Tree) -> Tree:
        """The tree with numbers of its own; those of the round's first tree begin at 0."""
        self.families += 1
        return numbered_from(tree, self.families - 1)


_OPS: dict[type, Callable[[ReferenceSession, Any, Scope], None]] = {
    Root: ReferenceSession.root,
    Grow: ReferenceSession.grow,
    Lookup: ReferenceSession.lookup,
    Update: ReferenceSession.update,
    Graft: ReferenceSession.graft,
    Pick: ReferenceSession.pick,
    Prune: ReferenceSession.prune,
    Forward: ReferenceSession.forward,
    Uniform: ReferenceSession.uniform,
    Accept: ReferenceSession.accept,
    Adopt: ReferenceSession.adopt,
    Emit: ReferenceSession.emit,
    Commit: ReferenceSession.commit,
    Repeat: stopping.repeat,
    Segment: lanes.segment,
    **CARRIED,
}
