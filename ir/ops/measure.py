"""`measure`: compute one number per request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import exp
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Judged, Logits, Picked, Scope, Tree
from specplan.ir.needs import Work
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.context import Context
from specplan.ir.types.scope import WORDS
from specplan.ir.types.value_types import (
    ROOT,
    LogitsType,
    NodesType,
    NumberType,
    PathType,
    StatesType,
    TreeType,
    Type,
)
from specplan.ir.values import Entry, Span, State, Value
from specplan.ir.world import Batch, World

_OF_VOCABULARIES = ("top1", "margin", "entropy", "score", "value")
"""Measures whose time depends on how much they read."""


@dataclass(frozen=True, kw_only=True)
class Measure(Op):
    """One number per request, of logits, states, a tree, a path, a cache, or numbers of a batch.

    `beside`: states of another layer, with which `saturation` compares.

    %m = measure %q top1
    %c = measure %h8 saturation beside=%h7
    %lag = measure @kv lag(layers=0:16)
    """

    keyword = "measure"
    positional = ("operand", "kind")
    touches = (("operand", ("cache",)),)
    entries = (("kind", "measure"),)
    operand: Value | State
    kind: Entry
    beside: Value | None = None

    @property
    def variant(self) -> str:
        """Its name in device profiles: its kind where it reads logits or scores, else empty."""
        return self.kind.name if self.kind.name in _OF_VOCABULARIES else ""

    def infer(self, context: Context) -> tuple[NumberType]:
        """A number, which may depend on tokens that were drawn in the round."""
        operand = self.operand
        measured = context.look(operand, "measure") if isinstance(operand, Value) else None
        if self.beside is not None:
            other = context.expect(self.beside, StatesType, "beside")
            if isinstance(measured, StatesType) and other.lineage is not measured.lineage:
                raise RuleError("lineage", f"%{operand} and %{self.beside} are of different trees")
        if isinstance(measured, NumberType):  # of all requests of the batch
            return (replace(measured, shared=True),)
        return (NumberType(_depends_on_draws(measured)),)

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """The operand is of the kind that the measure takes; lists are of numbers, as many each."""
        if self.kind.name == "listed":
            yield from (("entry", what) for what in _mislisted(self.kind))
        if not all(type(one) in (int, float) for one in self.kind.items("weights")):
            yield "entry", "logistic takes weights= a list of numbers"
        if (self.kind.name == "saturation") != (self.beside is not None):
            takes = "needs" if self.beside is None else "takes no"
            yield "arity", f"measure {self.kind.name} {takes} beside="
        declared = tables.find("measure", self.kind.name)
        if declared is None or not declared.of:
            return
        measured = step.reads.get(self.operand) if isinstance(self.operand, Value) else None
        word = "a cache" if measured is None else WORDS[type(measured)]
        part = declared.of == "tree" and isinstance(measured, NodesType)  # some of a tree's nodes
        if word.split()[-1] != declared.of and not part:
            yield "type", f"measure {declared.name} takes {declared.of}; {self.operand} is {word}"

    def demand(self, step: Step, plan: Plan) -> Work:
        """The nodes that are measured, where it reads logits or scores."""
        if not self.variant:
            return Work(self.keyword)
        measured = step.reads.get(self.operand) if isinstance(self.operand, Value) else None
        nodes = 1
        if isinstance(measured, TreeType | NodesType):
            nodes = measured.nodes if isinstance(measured, TreeType) else measured.width
        return Work(f"{self.keyword}:{self.variant}", max(1, nodes))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Of a path its nodes, of logits those of the first node, of uniforms the first number."""
        if isinstance(self.operand, State):
            span = self.kind.get("layers")
            assert isinstance(span, Span), "the table of measures says so"
            return (float(world.lag(self.operand, range(span.start, span.stop))),)
        value = scope[self.operand]
        if isinstance(value, Judged):
            return (float(len(value.nodes)),)
        if isinstance(value, Logits):
            first = next((value.own(path) for path in value.of), None)
            if first is None or self.beside is None:
                return (0.0 if first is None else world.measured(self.kind, first),)
            beside = next(map(scope[self.beside].own, value.of))
            return (0.0 if beside is None else world.measured(self.kind, first, beside),)
        if isinstance(value, list):
            return (float(value[0]),)
        nodes = Picked(value, value.numbers) if isinstance(value, Tree) else value
        live = [i for i in nodes.numbers if i != ROOT and i in nodes.tree.living]
        if self.kind.name == "listed":
            return (listed_numbers(self.kind).get(world.text[-1], 0.0),)
        if self.kind.name == "said":
            paths = (nodes.tree.path(i) for i in live)
            return (float(sum(path == world.text[: len(path)] for path in paths)),)
        if self.kind.name == "count":
            return (float(len(live)),)
        chances = sorted((exp(nodes.tree.score(i)) for i in live), reverse=True)
        return (float(sum(chances[: self.kind.integer("best", 1)])),)

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """Measures of a batch give all requests that take part the same number."""
        if not self.kind.name.startswith("batch_"):
            super().run_all(scopes, batch)
            return
        numbers = [float(scope[Value(self.operand)]) for scope in scopes.values()]
        of = {"batch_max": max(numbers), "batch_sum": sum(numbers)}
        whole = of.get(self.kind.name, sum(numbers) / len(numbers))
        for scope in scopes.values():
            scope[self.results[0]] = whole


def _mislisted(kind: Entry) -> Iterator[str]:
    """What is wrong with the lists of `listed`."""
    tokens, numbers = kind.items("tokens"), kind.items("numbers")
    whole = all(type(one) is int and one >= 0 for one in tokens)
    if not whole or not all(type(one) in (int, float) for one in numbers):
        yield "listed takes tokens= a list of token ids and numbers= a list of numbers"
    elif len(tokens) != len(numbers):
        yield f"listed has {len(tokens)} tokens and {len(numbers)} numbers; give one for each"


def listed_numbers(kind: Entry) -> dict[int, float]:
    """The numbers that `listed` has, by token."""
    pairs = zip(kind.items("tokens"), kind.items("numbers"), strict=False)
    return {int(token): float(number) for token, number in pairs}


def _depends_on_draws(measured: Type | None) -> bool:
    """Whether what is measured depends on tokens that were drawn in the round."""
    if isinstance(measured, TreeType):
        return measured.drawn
    if isinstance(measured, NodesType | LogitsType | StatesType | PathType):
        return measured.lineage is not None and measured.lineage.drawn
    return False


OP = Measure
