"""One request as ops see it: its text and its states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from specplan.backends.oracle.acceptance import judged
from specplan.backends.oracle.arithmetic import Arithmetic
from specplan.backends.oracle.memory import Memory
from specplan.backends.oracle.passes import Pass
from specplan.backends.oracle.stacks import Stack
from specplan.ir.meaning import Judged, Logits, Node, Path, Picked, Tree
from specplan.ir.op import Op, Step
from specplan.ir.ops import Accept, Forward, Lookup
from specplan.ir.plan import CacheState, Plan, TrackState, ValueState
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.value_types import ROOT, TreeType, Type
from specplan.ir.values import TEXT_STATE, State, Value
from specplan.ir.world import Batch
from specplan.runtime import sampling
from specplan.runtime.grammar import ruled_out
from specplan.runtime.requests import Request
from specplan.runtime.sources.registry import BatchSource
from specplan.runtime.sources.source import Wanted
from specplan.runtime.sources.text import continuations, match_of
from specplan.runtime.uniforms import numbers_of


class OneRequest(Arithmetic):
    """See `specplan.ir.world.World`."""

    def __init__(
        self,
        plan: Plan,
        stacks: Mapping[str, Stack],
        request: Request,
        sources: Mapping[str, BatchSource],
        row: int,
        batch: Batch,
    ) -> None:
        super().__init__(request)
        self.plan, self.stacks, self.request, self.batch = plan, stacks, request, batch
        self.sources, self.row = sources, row
        self.text: Path = tuple(request.prompt_tokens)
        self.begin, self.prompt_length = self.text, len(self.text)
        self.done = request.max_new_tokens == 0
        self.trip = self.allowance = 0
        self.types: TypesByTrip
        self.values: dict[State, Any] = {}
        self.memory: dict[str, Memory] = {}
        self.outside: dict[str, Tensor] = {}
        for state in plan.states:
            if isinstance(state, ValueState):
                self.values[state.name] = _first_value(state)
            elif isinstance(state, CacheState | TrackState):
                self.memory[state.name] = Memory(track=isinstance(state, TrackState))
            if isinstance(state, TrackState) and state.layer == "encoder":
                self.outside[state.name] = stacks[state.model].outside(request)
        for state in plan.states:
            if isinstance(state, CacheState) and state.view is not None:
                self.memory[state.name].whole = self.memory[state.view]

    def begin_round(self, types: TypesByTrip) -> None:
        """What was written in scratch is gone."""
        self.begin, self.types, self.trip = self.text, types, 0
        for memory in self.memory.values():
            memory.scratch.clear()

    def filled(self, op: Op, values: Sequence[Any]) -> Sequence[Any]:
        """See `World.filled`."""
        kinds = self.types.results(op, self.trip)
        return [
            value.filled_to(kind.nodes)
            if isinstance(value, Tree) and isinstance(kind, TreeType)
            else value
            for value, kind in zip(values, kinds, strict=True)
        ]

    # models

    def forward(self, op: Forward, operands: Sequence[Picked]) -> tuple[Logits, ...]:
        """See `World.forward`."""
        allowance = None if op.most is None else self.allowance
        return Pass(self, op, operands, allowance).run()

    def need(self, op: Forward, operands: Sequence[Picked]) -> tuple[int, int]:
        """See `World.need`."""
        asked = Pass(self, op, operands)
        wanted = asked.wanted()
        return len(wanted), len([path for path in asked.missing() if path not in wanted])

    @property
    def around(self) -> Mapping[str, float]:
        """See `World.around`."""
        active = [world for world in self.batch.worlds if not world.done]
        return {
            "batch": len(active),
            "context": max((len(world.text) for world in active), default=0),
            "emitted": len(self.begin) - self.prompt_length,
            "phase": 0,
        }

    def left(self, output: str) -> Callable[[Path, Tensor], Tensor] | None:
        """What a grammar leaves of logits after a path; None without one, and of other outputs."""
        masked = output == "logits" and self.request.grammar is not None
        return self._masked if masked else None

    def _masked(self, path: Path, logits: Tensor) -> Tensor:
        """Logits after a path, which a new parser reads from the start; all where it refuses."""
        grammar = self.request.grammar
        assert grammar is not None
        parser = grammar.matcher()
        output = list(path[self.prompt_length :])
        if max(output, default=0) >= grammar.tokens.vocab_size:
            return logits
        if parser.try_consume_tokens(output) < len(output):
            return logits
        flags = torch.from_numpy(ruled_out(parser, len(logits)))
        return logits.masked_fill(flags, torch.finfo(logits.dtype).min / 4)

    def commit(self, state: State, alive: Tree | None) -> None:
        """See `World.commit`."""
        nodes = () if alive is None else (alive.path(i) for i in alive.live_nodes)
        declared = self.plan.state(state)
        stays = not (isinstance(declared, CacheState) and declared.rollback == "replay")
        self.memory[state].commit(self.text, len(self.begin), nodes, stays)
        if isinstance(declared, CacheState) and declared.view is None:
            self.forget(declared)

    def forget(self, cache: CacheState) -> None:
        """Let a small cache of its own drop what is over its budget."""
        if cache.policy is not None and cache.budget is not None:
            sink = min(cache.policy.integer("sink", 16), cache.budget)
            self.memory[cache.name].forget(self.text, sink, cache.budget)

    def refresh(self, state: State) -> None:
        """See `World.refresh`."""
        view = self.plan.state(state)
        assert isinstance(view, CacheState) and view.view is not None and view.policy is not None
        memory, whole = self.memory[state], self.memory[view.view]
        size = memory.upto = whole.read(self.text)
        budget = view.budget or size
        stack = self.stacks[view.model]
        paths = [self.text[:n] for n in range(1, size + 1)]
        visible: dict[int, list[list[int]]] = {}
        for layer in range(stack.num_layers if size else 0):
            if view.policy.name == "retrieved":
                there = [path for path in paths if whole.get(layer, path) is not None]
                states = torch.stack([whole.get(layer, path) for path in there])
                chunk = view.policy.integer("chunk", 8)
                asks = max(i for i, path in enumerate(there) if len(path) <= len(self.begin))
                heads = stack.retrieved(layer, states, there, asks, budget, chunk)
                visible[layer] = [[len(there[i]) - 1 for i in head] for head in heads]
            elif view.policy.name == "observed":
                there = [self.text[:n] for n in range(1, self.prompt_length)]
                facts = [whole.get(layer, path) for path in there] if size >= len(there) else []
                heads = stack.observed(layer, facts, there[: len(facts)], size, budget, view.policy)
                visible[layer] = heads
            else:
                sink = min(view.policy.integer("sink", 16), budget)
                visible[layer] = [[i for i in range(size) if i < sink or i >= size - budget + sink]]
        memory.visible = visible

    def lag(self, state: State, layers: Sequence[int]) -> int:
        """See `World.lag`."""
        ends = {layers[0], layers[-1]} if layers else set()
        memory = self.memory[state]
        prefixes = [self.text[:n] for n in range(1, len(self.text) + 1)]
        return sum(any(memory.get(n, path) is None for n in ends) for path in prefixes)

    # draws and judgement

    def uniforms(self, stream: str, key: str, offset: int, count: int) -> list[float]:
        """See `World.uniforms`."""
        read = numbers_of(cast(Any, key))
        numbers: list[float] = read([self.request.seed], stream, [len(self.begin)], offset, count)[
            0
        ].tolist()
        return numbers

    def judged(
        self, op: Accept, tree: Tree, start: int, logits: Logits, by: Sequence[float] | None
    ) -> Judged:
        """See `World.judged`."""
        return judged(self, op, tree, start, logits, by)

    # text and sources

    def emit(self, tokens: Path) -> int:
        """Append tokens to the text, up to a stop token or the limit; how many there were."""
        for count, token in enumerate(tokens):
            if self.done:
                return count
            self.text += (token,)
            grown = len(self.text) - self.prompt_length
            self.done = token in self.request.stop_tokens or grown >= self.request.max_new_tokens
        return len(tokens)

    def source_nodes(self, op: Lookup, path: Path, children: int) -> list[tuple[int, int, bool]]:
        """See `World.source_nodes`."""
        text = np.array(path, dtype=np.int64)
        match = match_of(op.source, op.match)
        merged = op.nodes is not None and op.nodes < children * op.length
        wanted = Wanted(match[0], match[-1], children, op.length, op.nodes if merged else None)
        if op.source == TEXT_STATE:
            given = continuations(text, wanted)
        else:
            lengths = np.array([len(text)])
            given = self.sources[op.source].each[self.row].lookup(text[None], lengths, wanted)
        parts = zip(given.tokens[0], given.parents[0], given.live[0], strict=True)
        return [(int(token), int(parent), bool(live)) for token, parent, live in parts]

    def learn(self, source: State, tree: Tree, logits: Logits | None, last: int | None) -> None:
        """See `World.learn`."""
        use = self.sources[source]
        if logits is not None:
            numbers = [i for i in tree.numbers if i in tree.living]
            judged = [(i, logits.own(tree.path(i))) for i in numbers]
            taught = [(tree.path(i)[-1], vector) for i, vector in judged if vector is not None]
            if taught and use.width:
                stacked = torch.stack([vector for _, vector in taught])
                best = sampling.best(stacked[None], min(use.width, stacked.shape[1]))[0].numpy()
                use.each[self.row].learn_rows(np.array([token for token, _ in taught]), best)
        elif tree.nodes:
            drafted = len(tree.base) - 1
            runs = [
                np.array(tree.path(i)[drafted:][-(last or 1) :]) for i in tree.leaves if i != ROOT
            ]
            use.each[self.row].learn_runs(runs)
        else:
            use.learn_text(self.row, np.array(self.begin), last or 1)


def _first_value(state: ValueState) -> Any:
    declared = BUILTIN.find("value", state.kind.name)
    assert declared is not None
    given = declared.arguments(state.kind)
    if state.kind.name != "tree":
        return float(given["init"])
    parents = given["parents"] or range(-1, given["nodes"] - 1)
    return tuple(Node(max(given["init"], 0), parent, given["init"] >= 0) for parent in parents)


class TypesByTrip:
    """Types of a round, as they are in each trip through its loops."""

    def __init__(self, types: RoundTypes) -> None:
        self.steps: dict[tuple[int, int], Step] = {
            (id(one.op), one.trip): one for one in types.steps
        }
        self.regions = types.regions

    def results(self, op: Op, trip: int) -> Sequence[Type]:
        """Types of an op's results."""
        at = id(op), trip
        return self.steps[at].gives if at in self.steps else self.regions[at]

    def operand(self, op: Op, name: Value | None, trip: int) -> Type | None:
        """The type of what an op reads."""
        step = self.steps.get((id(op), trip))
        return None if step is None or name is None else step.reads.get(name)
