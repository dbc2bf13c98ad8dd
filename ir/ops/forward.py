"""`forward`: a model runs on nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from specplan.ir.blocks import Skips
from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope, numbered
from specplan.ir.needs import Allocation, Pass, Sizes
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import CacheState, Plan, Round, TrackState, walk, walk_plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.context import Context
from specplan.ir.types.value_types import LogitsType, NodesType, TreeType, Type
from specplan.ir.values import Span, State, Value
from specplan.ir.world import Batch, World


@dataclass(frozen=True, kw_only=True)
class Forward(Op):
    """A model runs on nodes of one or several trees and gives one row per node.

    `pending` is the number of text tokens, root included, that it may catch up; `layers` are spans
    of the stack, `skip` the blocks left out, by name;
    `features` feeds hidden states of a track, shifted by `shift` nodes; `keep` records them;
    `gives=[]` computes state only; `write=scratch` drops what it wrote when the round ends.
    `levels` rows per node, one number or one per node, look so many tokens ahead, by heads or by
    slots below the node, as the model has them; slots see what is above them and are never cached.
    `most` bounds the tokens of all requests of the batch together: drafted nodes and roots first,
    then text in order of arrival; who does not fit waits.

    %l = forward target %t cache=@kv pending=1
    %q = forward head %f cache=@hkv pending=5 features=@h shift=1 write=scratch
    """

    keyword = "forward"
    positional = ("model", "nodes")
    touches = (
        ("cache", ("cache",)),
        ("features", ("track",)),
        ("keep", ("track",)),
    )
    writes = ("cache", "keep")
    narrowed = (
        (
            "pending",
            "most= bounds the tokens of requests of several widths together.",
        ),
        ("gives", "Heads are levels: levels=3 in place of gives=[head.1, head.2, head.3]."),
    )
    model: str
    nodes: tuple[Value, ...]
    cache: State | None = None
    pending: int = 0
    layers: tuple[Span, ...] = ()
    skip: tuple[str, ...] = ()
    features: State | None = None
    shift: int = 0
    keep: State | None = None
    gives: tuple[Literal["logits", "score"], ...] | None = None
    levels: int | tuple[int, ...] = 1
    most: int | None = None
    attend: Literal["ancestors", "block"] = "ancestors"
    write: Literal["exact", "scratch"] = "exact"
    only: Literal["keys_values"] | None = None

    @property
    def runs(self) -> str:
        """The role of the model that it runs."""
        return self.model

    @property
    def most_levels(self) -> int:
        """How many tokens ahead its rows look at most."""
        return max(self.levels, default=1) if isinstance(self.levels, tuple) else self.levels

    @property
    def head_only(self) -> bool:
        """Whether it runs none of the layers, and the head alone on states that were kept."""
        return bool(self.layers) and all(span.start == span.stop for span in self.layers)

    def misplaced(self, plan: Plan) -> Iterator[Problem]:
        """Its cache is its model's; what skips blocks or sees a view is written as scratch only."""
        cache = None if self.cache is None else plan.state(self.cache)
        if not isinstance(cache, CacheState):
            return
        if cache.model != self.model:
            yield "declared", f"@{self.cache} is a cache of {cache.model}, not of {self.model}"
        if self.write != "scratch" and cache.view is not None:
            yield "view", f"@{cache.name} is a view: it takes write=scratch"
        if self.write != "scratch" and self.skip:
            holes = f"skipped blocks leave holes in @{cache.name}: it takes write=scratch"
            yield "view", holes

    def infer(self, context: Context) -> tuple[Type, ...]:
        """Rows per operand and kind of output."""
        if not self.nodes:
            raise RuleError("arity", "forward needs nodes to run on")
        try:
            Skips.read(self.skip)
        except ValueError as error:
            raise RuleError("type", str(error)) from error
        kinds = self.gives if self.gives is not None else ("logits",)
        exact = self._whole_stack(context)
        rows: list[Type] = []
        for name in self.nodes:
            nodes = context.nodes(name, "forward")
            if isinstance(self.levels, tuple) and len(self.levels) != nodes.width:
                counts = f"{len(self.levels)} levels for {nodes.width} nodes"
                raise RuleError("children", counts)
            made = LogitsType(
                nodes.width, nodes.indices, nodes.lineage, self.model, exact, self.most_levels,
                root=nodes.root,
            )  # fmt: skip
            rows += [made] * len(kinds)
        return tuple(rows)

    def _whole_stack(self, context: Context) -> bool:
        """True when the rows are those of the model's whole stack on its full cache."""
        plan = context.plan
        if self.write != "exact" or self.cache is None:
            return False
        if self.is_reduced(plan) or self.alters_stack(plan):
            return False
        if not self.layers:
            return True
        (span, *more) = self.layers
        from_below = self.features is not None or span.start == 0
        return not more and from_below and span.start < span.stop == context.ends[self.model]

    def is_reduced(self, plan: Plan) -> bool:
        """True when its cache holds less than the whole text."""
        cache = None if self.cache is None else plan.state(self.cache)
        return isinstance(cache, CacheState) and bool(cache.view or cache.policy or cache.budget)

    def alters_stack(self, plan: Plan) -> bool:
        """True when what it computes differs from the model's own stack at those layers."""
        if self.skip or self.only is not None or self.attend != "ancestors":
            return True
        return self.features is not None and not self.continues_stack(plan)

    def continues_stack(self, plan: Plan) -> bool:
        """True when the features are the model's own, of the layer that it begins at."""
        track = None if self.features is None else plan.state(self.features)
        if not isinstance(track, TrackState) or track.model != self.model or self.shift != 0:
            return False
        return bool(self.layers) and track.layer == self.layers[0].start

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """Hidden states are recorded where they arise, and go in where the model expects them."""
        yield from (("features", what) for what in self._misread(plan))

    def _misread(self, plan: Plan) -> Iterator[str]:
        track = None if self.features is None else plan.state(self.features)
        if isinstance(track, TrackState):
            given = isinstance(track.layer, str) and track.layer != "last"  # from outside
            ways = ("exact", self.write)
            if not given and not any(_keeps(op, track.name, ways) for op in walk_plan(plan)):
                yield f"no forward keeps @{track.name}" + " for good" * (self.write == "exact")
            own = track.model == self.model and not given
            if own and self.shift == 0 and self.layers and not self.continues_stack(plan):
                yield f"@{track.name} holds layer {_layer(track)}; begin layers= there"
            ahead = self.most_levels + self.shift
            if own and self.head_only and self.most_levels > 1 and ahead > track.levels:
                yield f"@{track.name} keeps {track.levels} levels, not {ahead}"
            if own and self.shift > 0 and self.layers and not self.head_only:
                yield "features of earlier nodes enter at the first layer; leave layers= out"
        elif self.shift:
            yield "shift= says which node's features= are read, and there are none"
        record = None if self.keep is None else plan.state(self.keep)
        if isinstance(record, TrackState) and record.model == self.model and self.layers:
            wanted = record.layer if isinstance(record.layer, tuple) else (record.layer,)
            for layer in wanted:
                if isinstance(layer, int) and not any(_holds(s, layer) for s in self.layers):
                    yield f"layer {layer} of @{record.name} lies outside layers="

    @property
    def variety(self) -> tuple[bool, bool, str]:
        """Whether it runs the whole stack, and for good."""
        return bool(self.layers), bool(self.skip), self.write

    def demand(self, step: Step, plan: Plan) -> Pass:
        """A pass over the nodes of its operands."""
        root, drafted = _operands(self, step)
        cache = None if self.cache is None else plan.state(self.cache)
        budget = cache.budget if isinstance(cache, CacheState) else None
        track = None if self.features is None else plan.state(self.features)
        return Pass(
            model=self.model,
            cache=str(self.cache or ""),
            root=root,
            drafted=drafted,
            ahead=self._ahead(root + drafted),
            slots=self.cache is not None and not self.head_only,
            pending=self.pending,
            gives_logits=self.gives != (),
            spans=tuple((span.start, span.stop) for span in self.layers) or (None,),
            skips=Skips.read(self.skip),
            way=self.write,
            own_states=isinstance(track, TrackState) and track.model == self.model,
            budget=None if budget is None else float(budget),
        )

    def _ahead(self, nodes: int) -> int:
        """Rows beyond one per node."""
        if isinstance(self.levels, tuple):
            return sum(self.levels) - len(self.levels)
        return (self.levels - 1) * nodes

    def bytes(self, step: Step, sizes: Sizes) -> Iterator[Allocation]:
        """What its layers and its logits take; rows live until they are read for the last time."""
        root, drafted = _operands(self, step)
        first = root or (self.pending > 0 and step.trip == 0)
        width = max(drafted + (max(self.pending, 1) if first else 0), 1)
        rows = sum(given.width for given in step.gives if isinstance(given, LogitsType))
        rows += self._ahead(rows) if rows else 0
        parts = sizes.forward(self.model, width, rows)
        what = f"%{self.results[0]}" if self.results else f"{self.model}, no logits"
        yield Allocation(f"pass of {what}", parts.always, logits=False)
        yield Allocation(f"layers of {what}", parts.layers, last=0, logits=False)
        if rows:
            yield Allocation(f"states for {what}", parts.gathered, first=1, logits=False)
            yield Allocation(f"{what} before the cast", parts.cast, first=1)
            yield Allocation(f"rows {what}", parts.logits, first=1, last="logits")

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Logits of the nodes that have an unbroken line of states above them."""
        return world.forward(self, [numbered(scope[name]) for name in self.nodes])

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """With `most=`, nodes come first, then text in order; what does not fit waits."""
        if self.most is not None:
            operands = {
                row: [numbered(scope[name]) for name in self.nodes] for row, scope in scopes.items()
            }
            needs = {row: batch.worlds[row].need(self, items) for row, items in operands.items()}
            left = self.most - sum(nodes for nodes, _ in needs.values())
            for row, (_, text) in needs.items():
                batch.worlds[row].allowance = max(min(text, self.pending, left), 0)
                left -= min(text, self.pending)
        super().run_all(scopes, batch)


def _operands(op: Forward, step: Step) -> tuple[bool, int]:
    """Whether its operands hold the root, and how many drafted nodes they hold."""
    root, drafted = False, 0
    for name in op.nodes:
        nodes = step.reads[name]
        if isinstance(nodes, TreeType):
            root, drafted = True, drafted + nodes.nodes
        elif isinstance(nodes, NodesType):
            root = root or nodes.root
            drafted += nodes.width - (1 if nodes.root else 0)
    return root, drafted


def head_passes(plan: Plan) -> Iterator[Forward]:
    """Passes of models that are no language models by themselves.

    They read hidden states of another model, or give scores.
    """
    for op in walk_plan(plan):
        if isinstance(op, Forward):
            track = None if op.features is None else plan.state(op.features)
            reads = isinstance(track, TrackState) and track.model != op.model
            if reads or "score" in (op.gives or ()):
                yield op


def stack_ends(plan: Plan, item: Round) -> dict[str, int]:
    """Per model, the last layer that some forward names: taken to be the end of its stack."""
    ends: dict[str, int] = {}
    for op in chain(walk_plan(plan), walk(item.ops)):
        if isinstance(op, Forward):
            stops = [span.stop for span in op.layers]
            ends[op.model] = max([ends.get(op.model, 0), *stops])
    return ends


def _keeps(op: Op, track: State, ways: tuple[str, ...]) -> bool:
    return isinstance(op, Forward) and op.keep == track and op.write in ways


def _layer(track: TrackState) -> str:
    return str(list(track.layer)) if isinstance(track.layer, tuple) else str(track.layer)


def _holds(span: Span, layer: int) -> bool:
    return span.start <= layer <= span.stop


OP = Forward
