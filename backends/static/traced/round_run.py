"""A round run op by op on tensors: eagerly, or traced by a compiler.

Loops and conditions are one straight line: everything runs, and counts for some requests only. What
a trip drafts for a request that has stopped is dead: it is neither judged nor emitted, nor does a
cache keep it. That it is computed all the same is the price of a round that reads no number.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.fx.traceback import annotate

from specplan.backends.eager.op_runner import Scope, nodes_as, typed
from specplan.backends.eager.passes.columns import Pass
from specplan.backends.eager.passes.forward import columns_of
from specplan.backends.eager.passes.logits import rows_of_pass
from specplan.backends.eager.passes.one_pass import run_pass
from specplan.backends.eager.passes.text import lacking_text
from specplan.backends.eager.sources import judged_tokens
from specplan.backends.ops import lowerings
from specplan.backends.ops.tensors.trees import padded_to
from specplan.backends.ops.tensors.values import Logits, Path, Tree
from specplan.backends.ops.when import when as either
from specplan.backends.static.interface import report
from specplan.backends.static.traced.formulas import Formula
from specplan.backends.static.traced.round_state import RoundState
from specplan.backends.static.traced.states import parts_of
from specplan.ir import ops as ir
from specplan.ir.text.printer import print_op

PLAN_OP = "plan_op"
"""Of a traced node's `custom` metadata: the op of the plan that it came from, as text."""


class RoundRun(RoundState):
    """One trace, or one eager run."""

    def report(self) -> Tensor:
        """Run all ops; the round's report."""
        self.run(self.graph.item.ops, {})
        for cache in self.caches.values():
            cache.turn(scratch=False)
        tokens, count = self.batch.appended
        resident = [length for cache in self.caches.values() for length in cache.lengths.values()]
        return report(tokens, count, self.batch.done, self.failed, resident, self.lessons)

    def run(self, ops: tuple[ir.Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""
        for op in ops:
            with _annotated(op):
                self.run_op(op, scope)
            for name in self.analysis.spent.get(id(op), ()):
                scope.pop(name, None)

    def run_forward(self, op: ir.Forward, scope: Scope) -> None:
        """A model on nodes, and on as much text as may be pending."""
        spec = self.analysis.pass_specs[id(op)]
        place = self.analysis.places.placements.get((id(op), self.trip))
        operands = [nodes_as(scope[name]) for name in op.nodes]
        cache, texts = self.caches.get(spec.cache or ""), self.batch
        width = 0
        if cache is not None:
            cache.follow(texts.lengths)
            width = cache.texts(spec)
        call = columns_of(self, spec, cache, operands, width)
        passed = run_pass(Pass(self, spec, call, place), cache)
        if cache is not None and call.texts and spec.segments:
            lengths = texts.lengths
            if spec.features is not None and not spec.inside:  # up to the first that was lacking
                lacking = lacking_text(self, spec, call, passed.live)
                lengths = call.positions[:, : call.texts].where(lacking, texts.ends).amin(1)
                lengths = lengths.maximum(cache.resident(spec.segments, spec.scratch)[:, 0])
            cache.advance(spec, lengths, self.taking_part())
            if self.models[spec.model].optional_features:
                cache.grown(1)  # the last token, which runs again
        rows = rows_of_pass(self, spec, call, passed, operands)
        scope.update(zip(op.results, rows, strict=True))

    def run_uniform(self, op: ir.Uniform, scope: Scope) -> None:
        """Numbers that the host drew."""
        first = self.uniforms[id(op)] + self.trip * op.count
        scope[op.results[0]] = self.given.uniforms[:, first : first + op.count]

    def run_update(self, op: ir.Update, scope: Scope) -> None:
        """What a source learns once the round has run."""
        lesson = next((one for one in self.graph.inputs.lessons if one.op is op), None)
        if lesson is None or not lesson.numbers:
            return  # the host has the texts
        tree = padded_to(typed(scope[op.tree], Tree), lesson.columns)
        if op.logits is None:
            self.lessons += [tree.tokens, tree.parents, tree.live]
        else:
            rows = typed(scope[op.logits], Logits)
            self.lessons += judged_tokens(tree, rows, lesson.width)

    def run_emit(self, op: ir.Emit, scope: Scope) -> None:
        """Append to the texts."""
        path = typed(scope[op.path], Path)
        self.batch.emit(path)
        for cache in self.caches.values():
            cache.grown(path.tokens.shape[1])
        scope[op.results[0]] = path

    def run_commit(self, op: ir.Commit, scope: Scope) -> None:
        """Keep what was emitted."""
        path, (_, count) = typed(scope[op.path], Path), self.batch.appended
        positions, _, _ = self.batch.written
        emitted = count.minimum(path.accepted)
        resident = self.analysis.places.residents.get(id(op))
        if op.state in self.batch.tracks:
            width = path.keys.shape[1]
            there = torch.arange(width, device=emitted.device) < emitted[:, None]
            track, positions = self.batch.tracks[op.state], positions[:, :width]
            in_place = resident is not None and resident.in_place
            track.commit(path.keys, there, positions, in_place)
            if track.deeper:
                track.commit_deeper(*self.batch.since_root(positions, path.keys, there))
            return
        cache = self.caches[op.state]
        if not cache.taken:
            return
        if resident is not None and cache.placed is not None:
            cache.commit_placed(path, emitted, resident)
        else:
            cache.commit(path, emitted)

    def run_store(self, op: ir.Store, scope: Scope) -> None:
        """Leave a number, or a tree, for the next round."""
        left = lowerings()[op.keyword](op, scope, self)
        like = self.given.text[:, :1].new_zeros(
            (self.batch.size, self.models["target"].vocab_size),
            dtype=self.models["target"].logits_dtype,
        )
        names = self.graph.interface.parts(op.state)
        parts = parts_of(left, names, like)
        for known, new in zip(self.values[op.state], parts, strict=True):
            known.copy_(new)

    def run_compute(self, op: ir.Compute, scope: Scope) -> None:
        """Arithmetic on numbers; notes the requests for which a formula has no value.

        The interpreter ends there with an error. A request that has stopped or is done has a value
        of no meaning.
        """
        operands = {name: typed(scope[value], Tensor).double() for name, value in op.operands}
        formula = Formula(self.given.lengths)
        scope[op.results[0]] = formula.of(op.formula, {**self._around(), **operands})
        if formula.failed is not None:
            known = torch.zeros_like(self.given.lengths) if self.failed is None else self.failed
            first = formula.failed & self.counting() & self.running & (known == 0)
            place = self.graph.inputs.formulas.index(op.formula) + 1
            self.failed = torch.where(first, place, known)

    def _around(self) -> dict[str, Tensor]:
        """What formulas read beside their operands, float64 `[B]` by name."""
        wanted, given = ~self.batch.done, self.given
        return {
            "batch": wanted.sum().double().expand_as(given.lengths),
            "context": self.batch.lengths.where(wanted, 0).max().double().expand_as(given.lengths),
            "emitted": (given.lengths - given.prompts).double(),
            "phase": torch.zeros_like(given.lengths, dtype=torch.float64),
        }

    def run_when(self, op: ir.When, scope: Scope) -> None:
        """Ops for the requests whose flag holds; the others take what there was."""
        flag, outer = typed(scope[op.flag], Tensor), self.active
        self.active = flag if outer is None else outer & flag
        lacking = {name: dict(cache.lacking) for name, cache in self.caches.items()}
        inner = dict(scope)
        self.run(op.body.ops, inner)
        self.active = outer
        for name, cache in self.caches.items():  # the others have not taken in what these have
            known = lacking[name]
            cache.lacking = {where: max(known[where], now) for where, now in cache.lacking.items()}
        for name, new, other in zip(op.results, op.body.yields, op.otherwise, strict=True):
            scope[name] = either(flag, inner[new], scope[other])


def _annotated(op: ir.Op) -> AbstractContextManager[None]:
    """Marks the nodes that are traced inside with the op of the plan that they come from."""
    if not torch.compiler.is_exporting():
        return nullcontext()
    return annotate({PLAN_OP: print_op(op).splitlines()[0]})
