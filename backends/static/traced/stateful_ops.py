"""The ops of a traced round that touch texts, caches, states or other ops.

Loops and conditions are one straight line: everything runs, and counts for some requests only. What
a trip drafts for a request that has stopped is dead: it is neither judged nor emitted, nor does a
cache keep it. That it is computed all the same is the price of a round that reads no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.eager.op_runner import OpRunner, Scope, nodes_as, typed
from specplan.backends.eager.passes.forward import columns_of, lacking_text
from specplan.backends.eager.passes.logits import rows_of_pass
from specplan.backends.eager.passes.one_pass import run_pass
from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.sources import judged_tokens
from specplan.backends.eager.state.static_slots import Fresh, Placement
from specplan.backends.ops import lowerings
from specplan.backends.ops.tensors.trees import padded_to
from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree
from specplan.backends.ops.when import when as either
from specplan.backends.static.traced.formulas import Formula
from specplan.backends.static.traced.states import parts_of
from specplan.ir import ops as ir

if TYPE_CHECKING:
    from specplan.backends.static.traced.round_run import RoundRun


class TracedStops:
    """The requests of a batch in a loop whose trips all run; see `Stops`."""

    def __init__(self, run: RoundRun, only: Tensor | None) -> None:
        self._run, self._before, self._stopped = run, run.running, only is not None
        if only is not None:
            run.running = run.running & only

    @property
    def running(self) -> Tensor:
        """See `Stops`."""
        return self._run.running

    def any_stopped(self) -> bool:
        """See `Stops.any_stopped`: whether some may have."""
        return self._stopped

    def over(self) -> bool:
        """See `Stops.over`."""
        return False

    def passed(self, flag: Tensor) -> None:
        """See `Stops.passed`."""
        self._run.running, self._stopped = self._run.running & ~flag, True

    def end(self) -> None:
        """See `Stops.end`."""
        self._run.running = self._before


def _forward(run: RoundRun, op: ir.Forward, scope: Scope) -> None:
    """A model on nodes, and on as much text as may be pending."""
    spec = run.analysis.pass_specs[id(op)]
    place = run.analysis.places.placements.get((id(op), run.trip))
    rows = _run_forward(run, spec, [nodes_as(scope[name]) for name in op.nodes], place)
    scope.update(zip(op.results, rows, strict=True))


def _uniform(run: RoundRun, op: ir.Uniform, scope: Scope) -> None:
    """Numbers that the host drew."""
    first = run.uniforms[id(op)] + run.trip * op.count
    scope[op.results[0]] = run.given.uniforms[:, first : first + op.count]


def _update(run: RoundRun, op: ir.Update, scope: Scope) -> None:
    """What a source learns once the round has run."""
    lesson = next((one for one in run.graph.inputs.lessons if one.op is op), None)
    if lesson is None or not lesson.numbers:
        return  # the host has the texts
    tree = padded_to(typed(scope[op.tree], Tree), lesson.columns)
    if op.logits is None:
        run.lessons += [tree.tokens, tree.parents, tree.live]
    else:
        rows = typed(scope[op.logits], Logits)
        run.lessons += judged_tokens(tree, rows, lesson.width)


def _accept(run: RoundRun, op: ir.Accept, scope: Scope) -> None:
    """Judge a tree."""
    if op.target is not None:
        run.judged = typed(scope[op.target], Logits)
    scope[op.results[0]] = lowerings()[op.keyword](op, scope, run)


def _emit(run: RoundRun, op: ir.Emit, scope: Scope) -> None:
    """Append to the texts."""
    path = typed(scope[op.path], Path)
    run.batch.emit(path, run.batch.root(run.scores))
    for cache in run.caches.values():
        cache.grown(path.tokens.shape[1])
    scope[op.results[0]] = path


def _commit(run: RoundRun, op: ir.Commit, scope: Scope) -> None:
    """Keep what was emitted."""
    path, (_, count) = typed(scope[op.path], Path), run.batch.appended
    positions, _, _ = run.batch.written
    emitted = count.minimum(path.accepted)
    if op.state in run.batch.tracks:
        width = path.keys.shape[1]
        there = torch.arange(width, device=emitted.device) < emitted[:, None]
        run.batch.tracks[op.state].commit(path.keys, there, positions[:, :width])
        return
    cache, resident = run.caches[op.state], run.analysis.places.residents.get(id(op))
    if not cache.taken:
        return
    if resident is not None and cache.placed is not None:
        cache.commit_placed(path, emitted, resident)
    else:
        cache.commit(path, emitted)


def _store(run: RoundRun, op: ir.Store, scope: Scope) -> None:
    """Leave a number, or a tree, for the next round."""
    left = lowerings()[op.keyword](op, scope, run)
    like = run.given.text[:, :1].new_zeros(
        (run.batch.size, run.models["target"].vocab_size),
        dtype=run.models["target"].logits_dtype,
    )
    names = run.graph.interface.parts(op.state)
    parts = parts_of(left, names, like)
    for known, new in zip(run.values[op.state], parts, strict=True):
        known.copy_(new)


def _run_forward(
    run: RoundRun, spec: PassSpec, operands: Sequence[Nodes], place: Placement | Fresh | None
) -> list[Logits]:
    """Run a model on nodes, and on text that its layers lack.

    Args:
        run: the round, its caches and tracks.
        spec: which layers run, from what, and what is kept.
        operands: nodes, of one tree each; the root of all is the same.
        place: their slots, where they are known.

    Returns:
        Logits of each operand, for each thing that the pass gives.
    """
    cache, texts = run.caches.get(spec.cache or ""), run.batch
    width = 0
    if cache is not None:
        cache.follow(texts.lengths)
        width = cache.texts(spec)
    call = columns_of(run, spec, cache, operands, width)
    passed = run_pass(run, spec, cache, call, place)
    if cache is not None and call.texts and spec.segments:
        lengths = texts.lengths
        if spec.features is not None and not spec.inside:  # up to the first that was lacking
            lacking = lacking_text(run, spec, call, passed.live)
            lengths = call.positions[:, : call.texts].where(lacking, texts.ends).amin(1)
            lengths = lengths.maximum(cache.resident(spec.segments, spec.scratch)[:, 0])
        cache.advance(spec, lengths, run.taking_part())
        if run.models[spec.model].optional_features:
            cache.grown(1)  # the last token, which runs again
    return rows_of_pass(run, spec, call, passed, operands)


def _compute(run: RoundRun, op: ir.Compute, scope: Scope) -> None:
    """Arithmetic on numbers; notes the requests for which a formula has no value.

    The interpreter ends there with an error. A request that has stopped or is done has a value of
    no meaning.
    """
    operands = {name: typed(scope[value], Tensor).double() for name, value in op.operands}
    formula = Formula(run.given.lengths)
    scope[op.results[0]] = formula.of(op.formula, {**_around(run), **operands})
    if formula.failed is not None:
        known = torch.zeros_like(run.given.lengths) if run.failed is None else run.failed
        first = formula.failed & run.counting() & run.running & (known == 0)
        place = run.graph.inputs.formulas.index(op.formula) + 1
        run.failed = torch.where(first, place, known)


def _around(run: RoundRun) -> dict[str, Tensor]:
    """What formulas read beside their operands, float64 `[B]` by name."""
    wanted, given = ~run.batch.done, run.given
    return {
        "batch": wanted.sum().double().expand_as(given.lengths),
        "context": run.batch.lengths.where(wanted, 0).max().double().expand_as(given.lengths),
        "emitted": (given.lengths - given.prompts).double(),
        "phase": torch.zeros_like(given.lengths, dtype=torch.float64),
    }


def _when(run: RoundRun, op: ir.When, scope: Scope) -> None:
    """Ops for the requests whose flag holds; the others take what there was."""
    flag, outer = typed(scope[op.flag], Tensor), run.active
    run.active = flag if outer is None else outer & flag
    lacking = {name: dict(cache.lacking) for name, cache in run.caches.items()}
    inner = dict(scope)
    run.run(op.body.ops, inner)
    run.active = outer
    for name, cache in run.caches.items():  # the others have not taken in what these have
        known = lacking[name]
        cache.lacking = {where: max(known[where], now) for where, now in cache.lacking.items()}
    for name, new, other in zip(op.results, op.body.yields, op.otherwise, strict=True):
        scope[name] = either(flag, inner[new], scope[other])


def _segment(run: RoundRun, op: ir.Segment, scope: Scope) -> None:
    scope.update(run.region(op, dict(scope)))


OPS: dict[type[ir.Op], Callable[[Any, Any, Scope], None]] = {
    ir.Forward: _forward,
    ir.Uniform: _uniform,
    ir.Lookup: OpRunner.lookup,
    ir.Update: _update,
    ir.Accept: _accept,
    ir.Emit: _emit,
    ir.Commit: _commit,
    ir.Store: _store,
    ir.Measure: OpRunner.measure,
    ir.Compute: _compute,
    ir.Repeat: OpRunner.repeat,
    ir.When: _when,
    ir.Segment: _segment,
}
"""See `OpRunner.stateful`."""
