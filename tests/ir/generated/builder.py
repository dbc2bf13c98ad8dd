"""Rounds as text, op by op, with the types that the verifier finds for what was written so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias, TypeVar

from specplan.ir.ops import Accept, Grow, Uniform
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.infer import InferenceError, RoundTypes, Step, infer_round
from specplan.ir.types.scope import nodes_of
from specplan.ir.types.tree_types import child_counts
from specplan.ir.types.value_types import PathType, TreeType, Type
from specplan.ir.values import Value

T = TypeVar("T")
Promise: TypeAlias = Literal["target", "stated", "bounded", "free"]
MOST_NODES = 16
"""Drafted nodes of a tree."""


@dataclass
class Statements:
    """What the rounds of a plan share.

    Attributes:
        models: roles that some round runs.
        states: declarations by name, in order of first use.
        promise: which law the output follows.
        greedy: it serves temperature 0 alone.
        races: its draws are keyed by position, which only races may read.
        passes: how the target runs in all rounds, as what one round leaves out of a cache or a
            track another lacks: its `whole` stack, in two `halves`, or `thin`, without some layers.
        layers: attribute of its passes where they are thin.
        heads: its last hidden states are kept, for heads to read.
        shared: something depends on other requests.
    """

    models: dict[str, str] = field(default_factory=lambda: {"target": ""})
    states: dict[str, str] = field(default_factory=dict)
    promise: Promise = "target"
    greedy: bool = False
    races: bool = False
    shared: bool = False
    passes: Literal["whole", "halves", "thin"] = "whole"
    layers: str = ""
    heads: bool = False

    @property
    def keeps_law(self) -> bool:
        """Whether rules are to keep the law of the rows that they judge by."""
        return self.promise != "free"

    def text(self, name: str, assumptions: str = "") -> str:
        """The statements above the rounds."""
        lines = [f"plan {name}"]
        lines += [f"model {model}{more}" for model, more in self.models.items()]
        lines += [assumptions] if assumptions else []
        lines += [f"state {state} = {kind}" for state, kind in self.states.items()]
        return "\n".join(lines)


class Builder:
    """One round on its way.

    Attributes:
        random: the plan's own numbers.
        plan: statements that ops may add to.
        written: states that are written for good, in order; they are committed at the end.
    """

    def __init__(self, random: Random, plan: Statements) -> None:
        self.random = random
        self.plan = plan
        self.written: list[str] = []
        self._lines: list[str] = []
        self._open: list[str] = []
        self._count = 0
        self._uniforms: dict[str, tuple[str, str]] = {}
        self._typed: tuple[str, RoundTypes] | None = None

    # ------------------------------------------------ choices

    def chance(self, share: float) -> bool:
        """True in that share of all cases."""
        return self.random.random() < share

    def pick(self, *options: T) -> T:
        """One of some things, each as likely as the others."""
        return self.random.choice(options)

    # ------------------------------------------------ text

    def let(self, op: str, prefix: str = "x", results: int = 1) -> str:
        """Write an op that gives values; returns their names, with commas between several."""
        names = [self.name(prefix) for _ in range(results)]
        self.do(f"{', '.join(names)} = {op}")
        return ", ".join(names)

    def do(self, op: str) -> None:
        """Write an op."""
        self._lines.append(op)

    def name(self, prefix: str = "x") -> str:
        """A name that no value has."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def draws(self, stream: str = "", key: str = "round") -> str:
        """Uniforms, as many as whoever reads them needs."""
        name = self.name("u")
        self._uniforms[name] = (stream or self.pick("draft", "other", name[1:]), key)
        self.do(f"{name} = <{name}>")
        return name

    @contextmanager
    def region(self, head: str, closing: str = "") -> Iterator[None]:
        """Ops between braces; `closing` is what would be yielded if it ended at once."""
        self.do(f"{head} {{")
        self._open.append(closing)
        yield
        self._open.pop()
        self.do("}")

    # ------------------------------------------------ types

    @property
    def types(self) -> RoundTypes:
        """Of what is written so far, open regions closed.

        Raises:
            InferenceError: the ops do not fit.
        """
        ends = [f"{closing}\n}}" for closing in reversed(self._open)]
        return self._infer("\n".join([*self._lines, *ends]))

    def _infer(self, body: str) -> RoundTypes:
        for name, (stream, key) in self._uniforms.items():
            body = body.replace(f"<{name}>", f"uniform 1 stream={stream} key={key}")
        text = f"{self.plan.text('p')}\nround r {{\n{body}\n}}\n"
        if self._typed is None or self._typed[0] != text:
            plan = parse_plan(text)
            self._typed = text, infer_round(plan, plan.rounds[0])
        return self._typed[1]

    def type_of(self, name: str) -> Type:
        """The type of a value."""
        return self.types.types[Value(name[1:])]

    def tree(self, name: str) -> TreeType:
        """The type of a tree."""
        tree = self.type_of(name)
        assert isinstance(tree, TreeType), f"{name} is no tree"
        return tree

    def attempt(self, write: Callable[[], T]) -> T | None:
        """Write some ops; None, and nothing written, where they do not fit or grow too much."""
        before = list(self._lines), list(self._open), list(self.written), dict(self.plan.states)
        models, uniforms, shared = dict(self.plan.models), dict(self._uniforms), self.plan.shared
        done: T | None = None
        try:
            done = write()
            trees = [tree for tree in self.types.types.values() if isinstance(tree, TreeType)]
            refuse_unless(max((tree.nodes for tree in trees), default=0) <= MOST_NODES)
        except (InferenceError, Refused):
            done = None
        if done is None:
            self._lines, self._open, self.written, self.plan.states = before
            self.plan.models, self._uniforms, self.plan.shared = models, uniforms, shared
        return done

    # ------------------------------------------------ the end

    def text(self, name: str) -> str:
        """The round, with as many uniforms as its draws need.

        Raises:
            InferenceError: the ops do not fit.
        """
        needs, trips = self._needs()
        ends: dict[str, int] = {}
        body = "\n".join(self._lines)
        for value, (stream, key) in self._uniforms.items():
            count, offset = needs.get(value, 1), ends.get(stream, 0)
            if key == "position":
                words = f"uniform {count} stream={stream} key=position"
            else:
                words = f"uniform {count} stream={stream} offset={offset}"
                ends[stream] = offset + count * trips[value]
            body = body.replace(f"<{value}>", words)
        return f"round {name} {{\n{_indented(body)}\n}}"

    def _needs(self) -> tuple[dict[str, int], dict[str, int]]:
        """Numbers that readers of each uniform op need at most, and the trips that it takes."""
        needs: dict[str, int] = {}
        trips: dict[str, int] = {}
        for step in self.types.steps:
            op = step.op
            if isinstance(op, Uniform):
                trips[f"%{op.results[0]}"] = step.trips
            elif isinstance(op, Grow | Accept) and op.by is not None:
                count = _drawn(step, op) if isinstance(op, Grow) else _judged(step, op)
                needs[f"%{op.by}"] = max(needs.get(f"%{op.by}", 1), count)
        return needs, trips


def _drawn(step: Step, op: Grow) -> int:
    """Uniforms that children need: one each, or for races one per level."""
    (grown,) = step.gives
    if op.races and isinstance(grown, TreeType):
        return grown.depth
    return sum(child_counts(op.children, nodes_of(step.reads, op.at, "at")))


def _judged(step: Step, op: Accept) -> int:
    """Uniforms that a rule needs for the nodes it judges, and one more."""
    tree, (path,) = step.reads[op.tree], step.gives
    assert isinstance(tree, TreeType) and isinstance(path, PathType)
    rule = BUILTIN.find("rule", op.rule.name)
    each = 0 if rule is None else rule.uniforms_per_node or 0
    return each * (tree.nodes if op.at is None else path.nodes) + 1


class Refused(Exception):
    """What was tried makes no sense here."""


def refuse_unless(sensible: bool) -> None:
    """Give up what `Builder.attempt` tries.

    Raises:
        Refused: it makes no sense.
    """
    if not sensible:
        raise Refused


def _indented(body: str) -> str:
    lines, depth = [], 1
    for line in body.split("\n"):
        depth -= line.startswith("}")
        lines.append("  " * depth + line)
        depth += line.endswith("{")
    return "\n".join(lines)
