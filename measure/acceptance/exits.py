"""Plans that let tokens leave the target early, replayed on what its layers say of a text.

One traced run of the target's own texts tells, at every position and exit layer, the logits that
stand there. The scalar part of a round (measures, formulas, flags) is then played token by token
for any plan, whatever its thresholds: which regions are entered, and by which logits each token is
emitted. What it says of losses is exact where every layer still reads the keys and values that the
whole stack writes: deep layers catch up on what was put off. Where an exit's states are copied
upward instead, shares and losses along the target's own text are an approximation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from specplan.ir import ops as ir
from specplan.ir.formula import evaluate
from specplan.ir.plan import Plan, ValueState
from specplan.ir.values import Span, State, Value
from specplan.measure.acceptance.teacher import TracedText, text_states
from specplan.measure.workbench import Workbench
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, probabilities

MEASURES = ("top1", "margin", "entropy")


@dataclass(frozen=True)
class LayerTrace:
    """What the logits after one layer say along a text, an entry for each output token.

    Attributes:
        measures: by name, `[n]` each.
        first: the most probable token.
        shared: min(1, q(x) / p(x)) of the text's token x, for the law q after this layer and the
            target's p: the chance that both draw it, given that the target did.
    """

    measures: Mapping[str, Sequence[float]]
    first: Sequence[int]
    shared: Sequence[float]


@dataclass(frozen=True)
class Played:
    """What a plan did along a text.

    Attributes:
        entered: per token, the sum of 2^i over the regions that were entered.
        layers: per token, after how many layers its logits stand.
    """

    entered: tuple[int, ...]
    layers: tuple[int, ...]


@lru_cache(maxsize=4096)
def exit_layers_of(plan: Plan) -> tuple[int, ...] | None:
    """The layers after which a plan reads logits; None where it is not one that can be replayed.

    It has one round of the target alone, whose flags depend on its logits, and draws nothing.
    """
    if len(plan.rounds) != 1 or plan.models_run != ("target",):
        return None
    layers: list[int] = []
    conditional = False
    for op in _walk(plan.rounds[0].ops):
        if not isinstance(op, _KNOWN):
            return None
        conditional = conditional or isinstance(op, ir.When)
        if isinstance(op, ir.Forward) and op.results:
            if op.skip or not op.layers or op.write != "exact" or op.levels != 1:
                return None
            layers.append(op.layers[-1].stop)
    return tuple(sorted(set(layers))) if conditional and len(set(layers)) > 1 else None


_KNOWN = (
    ir.Accept, ir.Commit, ir.Compute, ir.Emit, ir.Forward, ir.Grow, ir.Load, ir.Measure, ir.Root,
    ir.Uniform, ir.When,
)  # fmt: skip


def keys_are_exact(plan: Plan) -> bool:
    """Whether deep layers see the keys and values of the whole stack, so that replays are exact."""
    return all(not (isinstance(op, ir.Forward) and op.only) for op in _walk(plan.rounds[0].ops))


def _walk(ops: Sequence[ir.Op]) -> list[ir.Op]:
    every: list[ir.Op] = []
    for op in ops:
        every.append(op)
        every += [] if op.body is None else _walk(op.body.ops)
    return every


@torch.inference_mode()
def layer_trace(
    target: CausalModel, request: Request, output: Sequence[int], layer: int, law: Tensor
) -> LayerTrace:
    """What the logits after some layers say at every token of an output.

    Args:
        target: the model.
        request: whose prompt and settings they are.
        output: tokens of the target.
        layer: layers that run.
        law: chance of each output token by the target's law, `[n]`.
    """
    text = [*request.prompt_tokens, *output]
    logits = _logits(target, text, len(request.prompt_tokens), layer)
    shared = _chance(logits, request, output) / law.clamp(min=1e-30)
    probs = logits.double().softmax(-1)
    best = probs.topk(2).values
    entropy = -torch.where(probs > 0, probs * probs.log(), 0.0).sum(-1)
    return LayerTrace(
        {
            "top1": best[:, 0].tolist(),
            "margin": (best[:, 0] - best[:, 1]).tolist(),
            "entropy": entropy.tolist(),
        },
        logits.argmax(-1).tolist(),
        shared.clamp(max=1.0).tolist(),
    )


def _logits(target: CausalModel, text: Sequence[int], start: int, layers: int | None) -> Tensor:
    return target.logits(text_states(target, text, start, layers)[None])[0]


def _chance(logits: Tensor, request: Request, output: Sequence[int]) -> Tensor:
    """Of each output token by logits `[n, V]` at the request's settings, `[n]`."""
    settings = SamplingSettings.of([request], logits.device)
    probs = probabilities(logits[None], settings)[0].double()
    return probs.gather(1, torch.tensor([output], device=logits.device).T)[:, 0]


@dataclass
class ExitTraces:
    """Traces of texts by layer, computed once for all plans.

    Attributes:
        traces: by the text's prompt and output, and the layer.
    """

    traces: dict[tuple[tuple[int, ...], tuple[int, ...], int], LayerTrace] = field(
        default_factory=dict
    )

    @torch.inference_mode()
    def of(self, text: TracedText, layers: Sequence[int]) -> dict[int, LayerTrace]:
        """The traces of a text after some layers, the last one of the model left out."""
        name = text.request.prompt_tokens, text.output
        wanted = [layer for layer in layers if layer < text.target.num_layers]
        if not text.output:
            return {}
        if any((*name, layer) not in self.traces for layer in wanted):
            logits = _logits(text.target, text.tokens, text.start, None)
            law = _chance(logits, text.request, text.output)
            for layer in wanted:
                if (*name, layer) not in self.traces:
                    trace = layer_trace(text.target, text.request, text.output, layer, law)
                    self.traces[*name, layer] = trace
        return {layer: self.traces[*name, layer] for layer in wanted}


def played_along(bench: Workbench, plan: Plan, text: TracedText) -> Played:
    """What a plan that `exit_layers_of` knows does along a text; traces are kept with the bench."""
    traces = bench.exit_traces.of(text, exit_layers_of(plan) or ())
    return play(plan, traces, text.target.num_layers, len(text.output))


def loss_along(bench: Workbench, plan: Plan, text: TracedText) -> float:
    """P(the plan's output is not the target's), from the target's own output; see the module."""
    traces = bench.exit_traces.of(text, exit_layers_of(plan) or ())
    return 1.0 - shared_output(played_along(bench, plan, text), traces)


def play(plan: Plan, traces: Mapping[int, LayerTrace], layers: int, count: int) -> Played:
    """What a plan does along a text.

    Args:
        plan: one that `exit_layers_of` knows.
        traces: of its exit layers.
        layers: of the model.
        count: tokens of the output.
    """
    player = _Player(plan, traces, layers)
    steps = [player.step(place) for place in range(count)]
    return Played(tuple(entered for entered, _ in steps), tuple(layer for _, layer in steps))


def shared_output(played: Played, traces: Mapping[int, LayerTrace]) -> float:
    """P(the plan's output is the target's), the two drawn together token by token."""
    chance = 1.0
    for place, layer in enumerate(played.layers):
        chance *= traces[layer].shared[place] if layer in traces else 1.0
    return chance


class _Player:
    """Plays the scalar part of a round, token by token."""

    def __init__(self, plan: Plan, traces: Mapping[int, LayerTrace], layers: int) -> None:
        self.ops = plan.rounds[0].ops
        self.traces, self.layers = traces, layers
        regions = [op for op in _walk(self.ops) if isinstance(op, ir.When)]
        self.regions = {id(op): place for place, op in enumerate(regions)}
        self.numbers = {
            one.name: float(one.kind.get("init", 0.0))  # type: ignore[arg-type]
            for one in plan.states
            if isinstance(one, ValueState)
        }
        self.waiting = [0] * layers
        self.ran: set[int] = set()
        self.place = self.entered = 0

    def step(self, place: int) -> tuple[int, int]:
        """The regions that the round of a token enters, and the layer of its logits."""
        self.place, self.entered, self.ran = place, 0, set()
        scope: dict[Value, float] = {}
        self.run(self.ops, scope)
        emitted = next(op for op in self.ops if isinstance(op, ir.Emit))
        self.waiting = [
            0 if layer in self.ran else known + 1 for layer, known in enumerate(self.waiting)
        ]
        return self.entered, int(scope[emitted.path])

    def run(self, ops: Sequence[ir.Op], scope: dict[Value, float]) -> None:
        """Logits and trees grown from them are their layers, paths that of what judged them."""
        for op in ops:
            match op:
                case ir.When():
                    self.enter(op, scope)
                case ir.Forward():
                    span = op.layers[-1]
                    self.ran |= set(range(op.layers[0].start, span.stop))
                    scope.update({name: float(span.stop) for name in op.results})
                case ir.Grow() if op.logits is not None:
                    scope[op.results[0]] = scope[op.logits]
                case ir.Accept() if op.target is not None:
                    drafted = scope.get(op.tree)
                    layer = scope[op.target]
                    same = drafted is not None and self.first(drafted) == self.first(layer)
                    scope[op.results[0]] = layer if drafted is None else float(same)
                case ir.Load():
                    scope[op.results[0]] = self.numbers[op.state]
                case ir.Measure():
                    scope[op.results[0]] = self.measure(op, scope)
                case ir.Compute():
                    known = {key: scope[name] for key, name in op.operands}
                    around = {"emitted": float(self.place), "batch": 1.0, "phase": 0.0}
                    scope[op.results[0]] = float(evaluate(op.formula, {**around, **known}))

    def enter(self, op: ir.When, scope: dict[Value, float]) -> None:
        """A region, or what stands in its place."""
        names, inner = op.otherwise, scope
        if scope[op.flag]:
            self.entered |= 1 << self.regions[id(op)]
            inner = dict(scope)
            self.run(op.body.ops, inner)
            names = op.body.yields
        scope.update(zip(op.results, [inner[name] for name in names], strict=True))

    def first(self, layer: float) -> int:
        """The most probable token after some layers; -1 after all, which no exit agrees with."""
        trace = self.traces.get(int(layer))
        return -1 if trace is None else trace.first[self.place]

    def measure(self, op: ir.Measure, scope: dict[Value, float]) -> float:
        """A measure of logits, of a path that was judged, or of how far layers lie behind."""
        if isinstance(op.operand, State):
            span = op.kind.get("layers")
            assert isinstance(span, Span), "the table of measures says so"
            behind = range(span.start, min(span.stop, self.layers))
            return float(max(0 if n in self.ran else 1 + self.waiting[n] for n in behind))
        known = scope[Value(op.operand)]
        if op.kind.name == "accepted":
            return known
        return self.traces[int(known)].measures[op.kind.name][self.place]
