"""A run of a round on tensors, op by op: eager, or traced by a compiler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx.traceback import annotate

from specplan.backends.reference import choosing, growing, joining
from specplan.backends.reference.caches import TrackUse
from specplan.backends.reference.carrying import numbered_from
from specplan.backends.reference.columns import numbers_of_all, rows_of_each
from specplan.backends.reference.looking import placed, taught_rows, wanted_of
from specplan.backends.reference.one_pass import Texts, pending_of, prepare_pass, stretch_of
from specplan.backends.reference.slots import NodeSlots
from specplan.backends.reference.values import Rows, Tree, held_as, live_mask, nodes_as
from specplan.backends.static import judging
from specplan.backends.static.carried import CARRIED
from specplan.backends.static.fusing import FusedCache, kernel_mask
from specplan.backends.static.interface import RoundTensors, packed
from specplan.backends.static.loops import repeat
from specplan.backends.static.scalars import SCALARS
from specplan.backends.static.values import Path, Scope
from specplan.ir.ops import (
    Accept,
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
)
from specplan.ir.plan import CacheState
from specplan.ir.printer import print_op
from specplan.ir.values import State, Value
from specplan.runtime.sampling import SamplingSettings

if TYPE_CHECKING:
    from specplan.backends.static.graph import RoundGraph

PLAN_OP = "plan_op"
"""Of a traced node's `custom` metadata: the op of the plan that it came from, as text."""


class RoundRun:
    """One trace, or one eager run.

    Attributes:
        active: requests for which what runs now counts, bool `[B]`: all that are not done, and in
            a loop those that go on.
        trip: of the loop that may end early and that runs now.
        failed: by request, 1 and the place of the first formula that had no value, int64 `[B]`;
            None where none could fail.
        found: columns of what the host has found that were read so far.
        taught: what sources are to be taught, see `interface.Taught`.
    """

    def __init__(self, graph: RoundGraph, given: RoundTensors) -> None:
        self.graph = graph
        self.given = given
        self.settings = SamplingSettings(
            temperature=given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            greedy=graph.sampling.greedy,
            truncated=graph.sampling.truncated,
        )
        self.caches = {
            name: NodeSlots(num_layers=layers) for name, layers in graph.interface.caches
        }
        models = {
            str(state.name): state.model
            for state in graph.plan.states
            if isinstance(state, CacheState)
        }
        fused = graph.fused
        self.stores = {
            name: FusedCache(store, attended=models[name] in fused.attention)
            if models[name] in fused.moves
            else store
            for name, store in given.stores.items()
        }
        self.resident = dict(given.resident)
        self.tracks = {name: TrackUse(store) for name, store in given.tracks.items()}
        self.uniforms = {id(op): first for op, first, _ in graph.inputs.uniforms}
        self.families = self.found = 0
        self.emitted: Path | None = None
        self.rows: Rows | None = None
        self.done = given.done
        self.active = ~given.done
        self.trip = 0
        self.failed: Tensor | None = None
        self.taught: list[Tensor] = []

    def result(self) -> Tensor:
        """Run all ops; what the host is told."""
        self.run(self.graph.item.ops, {})
        path = self.emitted
        if path is None:
            tokens = self.given.text[:, :0]
            count = torch.zeros_like(self.given.lengths)
        else:
            tokens, count = path.tokens, path.count
        return packed(tokens, count, self.done, self.failed, self.resident, self.taught)

    def apart(self, tree: Tree) -> Tree:
        """The tree with numbers of its own."""
        self.families += 1
        return numbered_from(tree, self.families - 1)

    def worked(self, nodes: int, variant: str = "") -> None:
        """Nobody is told: a graph is timed as a whole."""

    def run(self, ops: tuple[Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""
        for op in ops:
            with _told_apart(op):
                _OPS[type(op)](self, op, scope)
            for name in self.graph.spent.get(id(op), ()):
                scope.pop(name, None)

    def root(self, op: Root, scope: Scope) -> None:
        """The tree without drafted nodes."""
        scope[op.results[0]] = self.apart(Tree(self.given.text[:, :0]))

    def grow(self, op: Grow, scope: Scope) -> None:
        """Children below nodes."""
        tree = held_as(scope, op.tree, Tree)
        by = None if op.by is None else held_as(scope, op.by, Tensor)
        at, rows = nodes_as(scope, op.at), held_as(scope, op.logits, Rows)
        grown = growing.grow(self.settings, op, tree, at, rows, by, scored=self.graph.scored)
        scope[op.results[0]] = grown

    def lookup(self, op: Lookup, scope: Scope) -> None:
        """Continuations of the text that the host has found."""
        tree, at = held_as(scope, op.tree, Tree), nodes_as(scope, op.at)
        assert isinstance(at.indices, tuple), "the host looks up below nodes that all share"
        first, given = self.found, self.given
        wanted = wanted_of(op, at)
        self.found += len(at.indices) * wanted.size
        tokens, parents, live = (
            part[:, first : self.found]
            for part in (given.found, given.found_parents, given.found_live)
        )
        grown = placed(op, tree, at, (tokens, parents, live), scored=self.graph.scored)
        if grown.own:  # rules take a node's children one by one
            grown = replace(grown, widest=min(wanted.children, grown.size))
        scope[op.results[0]] = grown

    def update(self, op: Update, scope: Scope) -> None:
        """What a source is taught once the round has run; texts the host has."""
        taught = next((one for one in self.graph.inputs.taught if one.op is op), None)
        if taught is None:
            return
        tree = held_as(scope, op.tree, Tree)
        if op.logits is None:
            self.taught += [tree.tokens, live_mask(tree)]
            return
        rows, given = held_as(scope, op.logits, Rows), self.given
        self.taught += taught_rows(given.text, given.lengths, tree, rows, taught.width)

    def graft(self, op: Graft, scope: Scope) -> None:
        """Trees joined at the root."""
        scope[op.results[0]] = joining.graft(op, [held_as(scope, name, Tree) for name in op.trees])

    def pick(self, op: Pick, scope: Scope) -> None:
        """Some nodes of a tree."""
        scope[op.results[0]] = choosing.pick(op, held_as(scope, op.tree, Tree))

    def prune(self, op: Prune, scope: Scope) -> None:
        """The nodes that were chosen, and their ancestors."""
        scope[op.results[0]] = choosing.prune(held_as(scope, op.tree, Tree), nodes_as(scope, op.to))

    def forward(self, op: Forward, scope: Scope) -> None:
        """A model on nodes, and on as much text as may be pending."""
        name = op.cache or State("")
        cached, store = self.caches[name], self.stores[name]
        stretch = stretch_of(op, cached.num_layers, self.tracks)
        trees, model = [nodes_as(scope, one) for one in op.nodes], self.graph.models[op.model]
        holds_root = any(nodes.holds_root for nodes in trees)
        with_root = holds_root or stretch.layers not in cached.passes(stretch.scratch)
        call = prepare_pass(
            Texts(self.given.text, self.given.lengths),
            self.resident[name],
            max(pending_of(op), 1) if with_root else 0,
            trees,
            cached,
            stretch,
            store.trash,
            0,
            None if op.model in self.graph.fused.attention else lambda: self.given.keys,
        )
        mask = call.mask if call.prefix is None else kernel_mask(call.prefix, call.mask)
        features = None if stretch.features is None else stretch.features.read(call.slots)
        hidden = model.hidden(
            call.tokens, call.positions, call.slots, mask, store,
            stretch.layers, features, stretch.skips,
        )  # fmt: skip
        if stretch.keep is not None:
            stretch.keep.write(cached, numbers_of_all(trees), call.slots, hidden)
        if with_root and not stretch.scratch and cached.caught_up:
            self.resident[name] = self.resident[name].maximum(self.given.lengths)
        if stretch.logits:
            rows = rows_of_each(trees, with_root, model.logits(hidden, call.gather))
            scope.update(zip(op.results, rows, strict=True))

    def uniform(self, op: Uniform, scope: Scope) -> None:
        """Numbers that the host has drawn."""
        first = self.uniforms[id(op)] + self.trip * op.count
        scope[op.results[0]] = self.given.uniforms[:, first : first + op.count]

    def accept(self, op: Accept, scope: Scope) -> None:
        """Judge a tree."""
        tree = held_as(scope, op.tree, Tree)
        by = None if op.by is None else held_as(scope, op.by, Tensor)
        self.rows = rows = held_as(scope, op.target or Value(""), Rows)
        scope[op.results[0]] = judging.accept(self.settings, op, tree, rows, by, self.graph.form)

    def emit(self, op: Emit, scope: Scope) -> None:
        """Append to the texts."""
        self.emitted, self.done = judging.emit(self.given, held_as(scope, op.path, Path))
        self.active = self.active & ~self.done
        scope[op.results[0]] = self.emitted

    def commit(self, op: Commit, scope: Scope) -> None:
        """Keep what was emitted."""
        path, name = held_as(scope, op.path, Path), op.state
        if name in self.tracks:
            judging.commit_track(self.tracks[name], self.given.lengths, path)
        else:
            self.resident[name] = judging.commit(
                self.caches[name], self.stores[name], self.resident[name], path
            )

    def segment(self, op: Segment, scope: Scope) -> None:
        """Ops one after another: all of a round is one graph."""
        inner = dict(scope)
        self.run(op.body.ops, inner)
        yielded = (inner[name] for name in op.body.yields)
        scope.update(zip(op.results, yielded, strict=True))


def _told_apart(op: Op) -> AbstractContextManager[None]:
    """Says of what is traced here which op of the plan it comes from."""
    if not torch.compiler.is_exporting():
        return nullcontext()
    return annotate({PLAN_OP: print_op(op).splitlines()[0]})


_OPS: dict[type, Callable[[RoundRun, Any, Scope], None]] = {
    Root: RoundRun.root,
    Grow: RoundRun.grow,
    Lookup: RoundRun.lookup,
    Update: RoundRun.update,
    Graft: RoundRun.graft,
    Pick: RoundRun.pick,
    Prune: RoundRun.prune,
    Forward: RoundRun.forward,
    Uniform: RoundRun.uniform,
    Accept: RoundRun.accept,
    Emit: RoundRun.emit,
    Commit: RoundRun.commit,
    Repeat: repeat,
    Segment: RoundRun.segment,
    **SCALARS,
    **CARRIED,
}
