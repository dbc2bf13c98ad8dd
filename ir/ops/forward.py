"""`forward`: run a model on nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from specplan.ir.blocks import Skips, read_heads
from specplan.ir.errors import RuleError
from specplan.ir.meaning import Scope, numbered
from specplan.ir.needs import Allocation, Pass, Sizes
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import CacheState, Plan, TrackState, walk_plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.context import Context
from specplan.ir.types.scope import read_besides_judging
from specplan.ir.types.value_types import LogitsType, NodesType, StatesType, TreeType, Type
from specplan.ir.values import Entry, Span, State, Value
from specplan.ir.world import Batch, World


@dataclass(frozen=True, kw_only=True)
class Forward(Op):
    """Run a model on nodes of one or several trees; gives the logits of each node.

    `pending`: most text tokens, root included, that it catches up. `layers`: spans of the stack.
    `skip`: names of the blocks that it leaves out. `features`: a track of hidden states to read,
    `shift` nodes above each node. `keep`: a track that records its own. `gives=[]` computes no
    logits; its `states` are those after its last layer, before any norm, which measures alone read.
    `write=scratch`: what it writes is dropped at the end of the round. `levels`: logits for that
    many tokens ahead, one number or one per node. They come from heads or from slots below the
    node, as the model has them; slots see everything above them and are never cached. `most`: bound
    on the tokens of all requests of the batch together. Drafted nodes and roots come first, then
    text in the order of requests; a request that does not fit waits. `policy`: which part of the
    cached text each head reads.

    %l = forward target %t cache=@kv pending=1
    %q = forward head %f cache=@hkv pending=5 features=@h shift=1 write=scratch
    """

    keyword = "forward"
    positional = ("model", "nodes")
    touches = (("cache", ("cache",)), ("features", ("track",)), ("keep", ("track",)))
    entries = (("policy", "policy"),)
    writes = ("cache", "keep")
    narrowed = (
        ("pending", "most= bounds the tokens of requests of several widths together."),
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
    gives: tuple[Literal["logits", "score", "states"], ...] | None = None
    levels: int | tuple[int, ...] = 1
    most: int | None = None
    attend: Literal["ancestors", "block"] = "ancestors"
    write: Literal["exact", "scratch"] = "exact"
    only: Literal["keys_values"] | None = None
    policy: Entry | None = None

    @property
    def runs(self) -> str:
        """The role of the model that it runs."""
        return self.model

    @property
    def gives_logits(self) -> bool:
        """Whether it runs an output head."""
        return self.gives is None or bool({*self.gives} - {"states"})

    @property
    def most_levels(self) -> int:
        """How many tokens ahead its logits look at most."""
        return max(self.levels, default=1) if isinstance(self.levels, tuple) else self.levels

    @property
    def head_only(self) -> bool:
        """Whether it runs no layer, but only the output head on hidden states of a track."""
        return bool(self.layers) and all(span.start == span.stop for span in self.layers)

    def tells_ahead(self, plan: Plan) -> bool:
        """Whether an op may read its logits beyond the first level; who judges reads that alone."""
        return self.most_levels > 1 and read_besides_judging(walk_plan(plan), self.results)

    def misplaced(self, plan: Plan) -> Iterator[Problem]:
        """Its cache is of its model; passes that read or run a part of it write as scratch."""
        cache = None if self.cache is None else plan.state(self.cache)
        if not isinstance(cache, CacheState):
            return
        if cache.model != self.model:
            what = f"@{self.cache} is a cache of model {cache.model}, not of {self.model}"
            yield "declared", what
        if self.write != "scratch" and cache.view is not None:
            yield "view", f"@{cache.name} is a view; give write=scratch"
        if self.write != "scratch" and self.skip:
            yield "view", f"skip= leaves gaps in @{cache.name}; give write=scratch"
        if self.policy is not None and (self.write != "scratch" or self.is_reduced(plan)):
            what = "is for passes with write=scratch on a cache that holds all text"
            yield "view", f"policy={self.policy.name} {what}"
        if self.policy is not None and self.pending > 1:
            yield "view", f"policy={self.policy.name} reads no text but the root; give pending=1"

    def infer(self, context: Context) -> tuple[Type, ...]:
        """Logits per operand and kind of output."""
        if not self.nodes:
            raise RuleError("arity", "forward needs at least one operand: a tree or nodes")
        try:
            Skips.read(self.skip)
            read_heads(() if self.policy is None else self.policy.words("retrieval"))
        except ValueError as error:
            raise RuleError("type", str(error)) from error
        kinds = self.gives if self.gives is not None else ("logits",)
        exact = self._whole_stack(context)
        logits: list[Type] = []
        for name in self.nodes:
            nodes = context.nodes(name, "forward")
            if isinstance(self.levels, tuple) and len(self.levels) != nodes.width:
                counts = f"levels= has {len(self.levels)} entries for {nodes.width} nodes"
                raise RuleError("children", counts)
            made = LogitsType(
                nodes.width, nodes.indices, nodes.lineage, self.model, exact, self.most_levels,
                root=nodes.root,
            )  # fmt: skip
            logits += [StatesType(nodes.lineage) if k == "states" else made for k in kinds]
        return tuple(logits)

    def _whole_stack(self, context: Context) -> bool:
        """Whether the model's whole stack computes the logits on its full cache."""
        if self.write != "exact" or self.cache is None:
            return self.write == "exact" and self._reads_whole_states(context)
        if self.is_reduced(context.plan) or self.alters_stack(context.plan):
            return False
        if not self.layers:
            return True
        (span, *more) = self.layers
        from_below = self.features is not None or span.start == 0
        return not more and from_below and span.start < span.stop == context.ends[self.model]

    def _reads_whole_states(self, context: Context) -> bool:
        """Whether its logits depend on nothing but what another model's whole stack left there."""
        track = None if self.features is None else context.plan.state(self.features)
        if not isinstance(track, TrackState) or track.model == self.model:
            return False
        keeping = (op for op in walk_plan(context.plan) if _keeps(op, track.name))
        whole = all(op.cache is not None and op._whole_stack(context) for op in keeping)
        return whole and self.head_only and self.shift == 0

    def is_reduced(self, plan: Plan) -> bool:
        """Whether its cache holds less than the whole text."""
        cache = None if self.cache is None else plan.state(self.cache)
        return isinstance(cache, CacheState) and bool(cache.view or cache.policy or cache.budget)

    def alters_stack(self, plan: Plan) -> bool:
        """Whether it computes something else than the model's own stack at those layers."""
        altered = bool(self.skip or self.only or self.policy) or self.attend != "ancestors"
        return altered or (self.features is not None and not self.continues_stack(plan))

    def continues_stack(self, plan: Plan) -> bool:
        """Whether it reads the model's own hidden states, of the layer at which it starts."""
        track = None if self.features is None else plan.state(self.features)
        if not isinstance(track, TrackState) or track.model != self.model or self.shift != 0:
            return False
        return bool(self.layers) and track.layer == self.layers[0].start

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """Tracks are recorded by some forward, at their own layers, and enter the stack there."""
        yield from (("features", what) for what in self._misread(plan))

    def _misread(self, plan: Plan) -> Iterator[str]:
        track = None if self.features is None else plan.state(self.features)
        if isinstance(track, TrackState):
            given = isinstance(track.layer, str) and track.layer != "last"  # from outside
            ways = ("exact", self.write)
            if not given and not any(_keeps(op, track.name, ways) for op in walk_plan(plan)):
                exact = " with write=exact" if self.write == "exact" else ""
                yield f"no forward{exact} records @{track.name}; give one keep=@{track.name}"
            own = track.model == self.model and not given
            if own and self.shift == 0 and self.layers and not self.continues_stack(plan):
                yield f"@{track.name} holds states of layer {_layer(track)}; start layers= there"
            ahead = self.most_levels + self.shift
            if own and self.head_only and self.most_levels > 1 and ahead > track.levels:
                yield f"@{track.name} has levels={track.levels}, and {ahead} are read here"
            if own and self.shift > 0 and self.layers and not self.head_only:
                yield "with shift= features enter at the first layer; leave layers= out"
        elif self.shift:
            yield "shift= needs features=, whose node it selects"
        record = None if self.keep is None else plan.state(self.keep)
        if isinstance(record, TrackState) and record.model == self.model and self.layers:
            wanted = record.layer if isinstance(record.layer, tuple) else (record.layer,)
            for layer in wanted:
                if isinstance(layer, int) and not any(_holds(s, layer) for s in self.layers):
                    yield f"keep=@{record.name} records layer {layer}, which layers= does not run"

    def demand(self, step: Step, plan: Plan) -> Pass:
        """A pass over the nodes of its operands."""
        root, drafted = _operands(self, step)
        ahead = self._ahead(root + drafted)
        cache = None if self.cache is None else plan.state(self.cache)
        budget = cache.budget if isinstance(cache, CacheState) else None
        heads: tuple[str, ...] = ()
        if self.policy is not None:
            budget, heads = self.policy.integer("budget", 0), self.policy.words("retrieval")
        track = None if self.features is None else plan.state(self.features)
        return Pass(
            model=self.model,
            cache=str(self.cache or ""),
            root=root,
            drafted=drafted,
            ahead=ahead,
            slots=self.cache is not None and not self.head_only,
            rows_ahead=ahead if self.tells_ahead(plan) else 0,
            pending=self.pending,
            gives_logits=self.gives_logits,
            spans=tuple((span.start, span.stop) for span in self.layers) or (None,),
            skips=Skips.read(self.skip),
            way=self.write,
            own_states=isinstance(track, TrackState) and track.model == self.model,
            budget=None if budget is None else float(budget),
            whole_heads=len(heads),
        )

    def _ahead(self, nodes: int) -> int:
        """Vectors beyond one per node."""
        if isinstance(self.levels, tuple):
            return sum(self.levels) - len(self.levels)
        return (self.levels - 1) * nodes

    def bytes(self, step: Step, sizes: Sizes) -> Iterator[Allocation]:
        """Memory of its layers and its logits; logits live until their last read."""
        root, drafted = _operands(self, step)
        first = root or (self.pending > 0 and step.trip == 0)
        width = max(drafted + (max(self.pending, 1) if first else 0), 1)
        outputs = sum(given.width for given in step.gives if isinstance(given, LogitsType))
        outputs += self._ahead(outputs) if outputs else 0
        parts = sizes.forward(self.model, width, outputs)
        what = f"%{self.results[0]}" if self.results else f"{self.model}, no logits"
        yield Allocation(f"pass of {what}", parts.always, logits=False)
        yield Allocation(f"layers of {what}", parts.layers, last=0, logits=False)
        if outputs:
            yield Allocation(f"states for {what}", parts.gathered, first=1, logits=False)
            yield Allocation(f"{what} before the cast", parts.cast, first=1)
            yield Allocation(f"rows {what}", parts.logits, first=1, last="logits")

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Logits of the nodes all of whose ancestors were computed."""
        return world.forward(self, [numbered(scope[name]) for name in self.nodes])

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """With `most=`, nodes come first, then text in order; requests that do not fit wait."""
        if self.most is not None:
            needs = {
                request: batch.worlds[request].need(self, [numbered(scope[n]) for n in self.nodes])
                for request, scope in scopes.items()
            }
            left = self.most - sum(nodes for nodes, _ in needs.values())
            for request, (_, text) in needs.items():
                batch.worlds[request].allowance = max(min(text, self.pending, left), 0)
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


def _keeps(op: Op, track: State, ways: Sequence[str] = ("exact", "scratch")) -> TypeGuard[Forward]:
    return isinstance(op, Forward) and op.keep == track and op.write in ways


def _layer(track: TrackState) -> str:
    return str(list(track.layer)) if isinstance(track.layer, tuple) else str(track.layer)


def _holds(span: Span, layer: int) -> bool:
    return span.start <= layer <= span.stop


OP = Forward
