"""Plans that let tokens leave the target early, replayed on what its layers say of a text.

One pass of the target over its own text tells, at every position and exit layer, the logits that
stand there (`exit_traces.py`). The scalar part of a round (measures, formulas, flags) is then
played token by token, for all texts at once and for any plan, whatever its thresholds: which
regions are entered, and by which logits each token is emitted. What it says of losses is exact
where every layer still reads the keys and values that the whole stack writes: deep layers catch up
on what was put off. Where an exit's states are copied upward instead, shares and losses along the
target's own text are an approximation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from specplan.backends.static.traced.formulas import Formula
from specplan.ir import ops as ir
from specplan.ir.errors import UsageError
from specplan.ir.ops.measure import listed_numbers
from specplan.ir.plan import Plan, ValueState, walk
from specplan.ir.values import Span, State, Value
from specplan.measure.acceptance.exit_traces import OfStates, Traces, traces_of
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import Workbench


@dataclass(frozen=True)
class Played:
    """What a plan did along some texts.

    Attributes:
        entered: int64 `[T, n]`, per token the sum of 2^i over the regions that were entered.
        layers: int64 `[T, n]`, per token after how many layers its logits stand.
        counts: tokens of each text; what stands behind them means nothing.
    """

    entered: Tensor
    layers: Tensor
    counts: tuple[int, ...]

    def rows(self) -> list[tuple[int, ...]]:
        """What was entered, an entry for each token of each text."""
        rows = zip(self.entered.tolist(), self.counts, strict=True)
        return [tuple(row[:count]) for row, count in rows]


@lru_cache(maxsize=4096)
def exit_layers_of(plan: Plan) -> tuple[int, ...] | None:
    """The layers after which a plan reads logits; None where it is not one that can be replayed.

    It has one round of the target alone, whose flags depend on its logits, and draws nothing.
    """
    if len(plan.rounds) != 1 or plan.models_run != ("target",):
        return None
    layers: list[int] = []
    conditional = False
    for op in walk(plan.rounds[0].ops):
        if not isinstance(op, _KNOWN):
            return None
        conditional = conditional or isinstance(op, ir.When)
        if isinstance(op, ir.Forward) and op.results:
            if op.skip or not op.layers or op.write != "exact" or op.levels != 1:
                return None
            layers.append(op.layers[-1].stop)
    return tuple(sorted(set(layers))) if conditional and len(set(layers)) > 1 else None


@lru_cache(maxsize=4096)
def _measures_of_states(plan: Plan) -> Mapping[Value, OfStates]:
    """What a plan measures of states, by the name of the number."""
    ops = [*walk(plan.rounds[0].ops)]
    ends = {
        name: op.layers[-1].stop for op in ops if isinstance(op, ir.Forward) for name in op.results
    }
    return {
        op.results[0]: OfStates(
            ends[Value(op.operand)], op.kind, 0 if op.beside is None else ends[op.beside]
        )
        for op in ops
        if isinstance(op, ir.Measure) and op.kind.name in ("saturation", "logistic")
    }


_KNOWN = (
    ir.Accept, ir.Commit, ir.Compute, ir.Emit, ir.Forward, ir.Grow, ir.Load, ir.Measure, ir.Root,
    ir.Uniform, ir.When,
)  # fmt: skip


def keys_are_exact(plan: Plan) -> bool:
    """Whether deep layers see the keys and values of the whole stack, so that replays are exact."""
    return all(not (isinstance(op, ir.Forward) and op.only) for op in walk(plan.rounds[0].ops))


def trace_for(
    bench: Workbench, plans: Sequence[Plan], texts: Sequence[TracedText], progress: Progress
) -> None:
    """Trace texts after the layers of all plans, one pass over each; kept with the bench."""
    layers = {layer for plan in plans for layer in exit_layers_of(plan) or ()}
    asked = {one for plan in plans for one in asked_of(plan)}
    if layers:
        traces_of(bench.exit_traces, texts, [*layers], progress, [*asked])


def played_along(bench: Workbench, plan: Plan, texts: Sequence[TracedText]) -> Played:
    """What a plan that `exit_layers_of` knows does along texts."""
    return play(plan, _traces(bench, plan, texts))


def losses_along(bench: Workbench, plan: Plan, texts: Sequence[TracedText]) -> list[float]:
    """P(the plan's output is not the target's) of each text, its own output; see the module."""
    traces = _traces(bench, plan, texts)
    shared = traces.at(traces.shared, play(plan, traces).layers)
    return (1.0 - shared.prod(1)).tolist()


def _traces(bench: Workbench, plan: Plan, texts: Sequence[TracedText]) -> Traces:
    layers = exit_layers_of(plan) or ()
    return traces_of(bench.exit_traces, texts, layers, silent, asked_of(plan))


def asked_of(plan: Plan) -> tuple[OfStates, ...]:
    """The measures of states of a plan; none of one that cannot be replayed."""
    return () if exit_layers_of(plan) is None else tuple(_measures_of_states(plan).values())


def play(plan: Plan, traces: Traces) -> Played:
    """What a plan does along texts.

    Args:
        plan: one that `exit_layers_of` knows.
        traces: of its exit layers.
    """
    player, most = _Player(plan, traces), max(traces.counts, default=0)
    entered, layers = torch.zeros(2, len(traces.counts), most, dtype=torch.int64)
    for place in range(most):
        entered[:, place], layers[:, place] = player.step(place)
    return Played(entered, layers, traces.counts)


class _Player:
    """Plays the scalar part of a round for all texts, token by token.

    Numbers are float64 `[T]`. Of a region that only some texts enter, everything is computed for
    all of them, and taken from it by those that do.
    """

    def __init__(self, plan: Plan, traces: Traces) -> None:
        self.ops = plan.rounds[0].ops
        self.traces, self.of_states = traces, _measures_of_states(plan)
        self.texts, self.lengths = len(traces.counts), torch.tensor(traces.counts)
        regions = [op for op in walk(self.ops) if isinstance(op, ir.When)]
        self.regions = {id(op): place for place, op in enumerate(regions)}
        self.numbers = {
            one.name: float(one.kind.get("init", 0.0))  # type: ignore[arg-type]
            for one in plan.states
            if isinstance(one, ValueState)
        }
        # A round that asks for the lag reads the prompt itself, so that all of it waits at first.
        before = torch.tensor(traces.prompts, dtype=torch.int64) - 1
        self.waiting = before[:, None].repeat(1, traces.layers)
        self.ran = torch.zeros(self.texts, traces.layers, dtype=torch.bool)
        self.entered = torch.zeros(self.texts, dtype=torch.int64)
        self.place = 0

    def step(self, place: int) -> tuple[Tensor, Tensor]:
        """The regions that the rounds of a token enter, and the layers of its logits."""
        self.place = place
        self.entered, self.ran = torch.zeros_like(self.entered), torch.zeros_like(self.ran)
        scope: dict[Value, Tensor] = {}
        self.run(self.ops, scope, self.lengths > place)
        emitted = next(op for op in self.ops if isinstance(op, ir.Emit))
        self.waiting = (self.waiting + 1).masked_fill(self.ran, 0)
        return self.entered, scope[emitted.path].long()

    def number(self, value: float) -> Tensor:
        """The same number for all texts."""
        return torch.full((self.texts,), value, dtype=torch.float64)

    def run(self, ops: Sequence[ir.Op], scope: dict[Value, Tensor], taking_part: Tensor) -> None:
        """Logits and trees grown from them are their layers, paths that of what judged them."""
        for op in ops:
            match op:
                case ir.When():
                    self.enter(op, scope, taking_part)
                case ir.Forward():
                    span = op.layers[-1]
                    self.ran[:, op.layers[0].start : span.stop] |= taking_part[:, None]
                    scope.update({name: self.number(span.stop) for name in op.results})
                case ir.Grow() if op.logits is not None:
                    scope[op.results[0]] = scope[op.logits]
                case ir.Accept() if op.target is not None:
                    drafted, layer = scope.get(op.tree), scope[op.target]
                    same = None if drafted is None else self.first(drafted) == self.first(layer)
                    scope[op.results[0]] = layer if same is None else same.double()
                case ir.Load():
                    scope[op.results[0]] = self.number(self.numbers[op.state])
                case ir.Measure():
                    scope[op.results[0]] = self.measure(op, scope)
                case ir.Compute():
                    scope[op.results[0]] = self.compute(op, scope, taking_part)

    def enter(self, op: ir.When, scope: dict[Value, Tensor], taking_part: Tensor) -> None:
        """A region where its flag is set, and elsewhere what stands in its place."""
        flag = scope[op.flag] != 0
        inner = dict(scope)
        self.entered += (taking_part & flag).long() << self.regions[id(op)]
        self.run(op.body.ops, inner, taking_part & flag)
        pairs = zip(op.results, op.body.yields, op.otherwise, strict=True)
        scope |= {name: torch.where(flag, inner[one], scope[other]) for name, one, other in pairs}

    def compute(self, op: ir.Compute, scope: Mapping[Value, Tensor], taking_part: Tensor) -> Tensor:
        """A formula of numbers, 1 for what is true."""
        known = {key: scope[name] for key, name in op.operands}
        around = {"emitted": float(self.place), "batch": 1.0, "phase": 0.0}
        formula = Formula(self.number(0.0))
        numbers = {key: self.number(value) for key, value in around.items()}
        value = formula.of(op.formula, {**numbers, **known})
        if formula.failed is not None and bool((formula.failed & taking_part).any()):
            raise UsageError("the formula has no value", where=f'"{op.formula}"')
        return value.double()

    def first(self, layers: Tensor) -> Tensor:
        """The most probable token after some layers of each text."""
        return self.traces.at(self.traces.first, layers, self.place)

    def measure(self, op: ir.Measure, scope: Mapping[Value, Tensor]) -> Tensor:
        """A measure of logits, of a path that was judged, or of how far layers lie behind."""
        if isinstance(op.operand, State):
            span = op.kind.get("layers")
            assert isinstance(span, Span), "the table of measures says so"
            behind = slice(span.start, min(span.stop, self.traces.layers))
            lag = (1 + self.waiting[:, behind]).masked_fill(self.ran[:, behind], 0)
            return lag.amax(1).double()
        if op.kind.name == "listed":
            numbers = listed_numbers(op.kind)
            roots = self.traces.before[:, self.place].tolist()
            return torch.tensor([numbers.get(root, 0.0) for root in roots], dtype=torch.float64)
        known = scope[Value(op.operand)]
        name: str | OfStates = self.of_states.get(op.results[0], op.kind.name)
        if op.kind.name == "accepted":
            return known
        return self.traces.at(self.traces.measures[name], known, self.place)
