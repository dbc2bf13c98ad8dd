"""One request as ops see it: its text, its states, and arithmetic on logits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from specplan.backends.oracle.memory import Memory
from specplan.backends.oracle.passes import Pass
from specplan.backends.oracle.stacks import Stack
from specplan.ir import meaning
from specplan.ir.infer import RoundTypes
from specplan.ir.meaning import ROOT, Judged, Logits, Node, Path, Picked, Tree
from specplan.ir.op import Op, Step
from specplan.ir.ops import Accept, Forward, Lookup
from specplan.ir.plan import CacheState, Plan, SourceState, TrackState, ValueState
from specplan.ir.tables import BUILTIN
from specplan.ir.types import LogitsType, TreeType, Type
from specplan.ir.values import TEXT_STATE, Entry, State, Value
from specplan.runtime import sampling
from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.laws import LAWS
from specplan.runtime.races import exponentials, race
from specplan.runtime.requests import Request
from specplan.runtime.sources.source import Wanted
from specplan.runtime.sources.text import continuations
from specplan.runtime.sources.use import SourceUse
from specplan.runtime.uniforms import numbers_of

TEXT_MATCH = (1, 3)
"""Suffixes that are looked for in the text itself where a plan does not say."""


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


class OneRequest:
    """See `specplan.ir.meaning.World`."""

    def __init__(
        self,
        plan: Plan,
        stacks: Mapping[str, Stack],
        request: Request,
        sources: Mapping[str, SourceUse],
        row: int,
        batch: meaning.Batch,
    ) -> None:
        self.plan, self.stacks, self.request, self.batch = plan, stacks, request, batch
        self.sources, self.row = sources, row
        self.text: Path = tuple(request.prompt_tokens)
        self.begin, self.prompt_length = self.text, len(self.text)
        self.done = request.max_new_tokens == 0
        self.trip = self.allowance = 0
        self.types: TypesByTrip
        self.settings = sampling.SamplingSettings.of([request])
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

    def commit(self, state: State, alive: Tree | None) -> None:
        """See `World.commit`."""
        nodes = () if alive is None else (alive.path(i) for i in alive.live_nodes)
        self.memory[state].commit(self.text, len(self.begin), nodes)
        declared = self.plan.state(state)
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

    # logits

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution that the request's sampling settings make of logits, `[V]`."""
        return sampling.law(logits[None, None], self.settings)[0, 0]

    def log_probability(self, logits: Tensor, token: int) -> float:
        """See `World.log_probability`."""
        return float(logits[token] - logits.logsumexp(-1))

    def likeliest(self, logits: Tensor, count: int) -> list[int]:
        """See `World.likeliest`."""
        tokens: list[int] = sampling.best(logits[None, None], count)[0, 0].tolist()
        return tokens

    def drawn(self, logits: Tensor, how: str, count: int, numbers: Sequence[float]) -> list[int]:
        """See `World.drawn`."""
        law = self.probabilities(logits)
        if how == "draw":
            return [int(sampling.draw(law, torch.tensor(u).double())) for u in numbers]
        given = torch.tensor(numbers, dtype=torch.float64)
        if how == "draw_distinct":
            tokens: list[int] = sampling.draw_distinct(law[None, None], given[None, None])[
                0, 0
            ].tolist()
            return tokens
        raced: list[int] = race(law, exponentials(given[0], len(law)), count).tolist()
        return raced

    def perturbed(
        self, logits: Tensor, count: int, number: float, line: Sequence[Node]
    ) -> list[tuple[int, float]]:
        """See `World.perturbed`."""
        law = self.probabilities(logits).double()
        above = sum(float(self.probabilities(n.logits)[n.token].double().log()) for n in line)
        times = exponentials(torch.tensor(number, dtype=torch.float64), len(law))
        noise = above + law.log() - times.log()
        if line:  # the best child has the noise of its parent
            shift = math.exp(-line[0].noise) - torch.exp(-noise.max())
            noise = -torch.log((torch.exp(-noise) + shift).clamp(min=1e-300))
        best = noise.topk(min(count, int((law > 0).sum()))).indices.tolist()
        return [(token, float(noise[token])) for token in best]

    def measured(self, kind: Entry, logits: Tensor) -> float:
        """See `World.measured`."""
        if kind.name == "score":
            return float(logits[0])
        law = logits.double().softmax(-1)
        if kind.name == "entropy":
            return float(-torch.where(law > 0, law * law.log(), 0.0).sum())
        top = law.topk(2).values
        return float(top[0] if kind.name == "top1" else top[0] - top[1])

    def mixed(self, law: Entry, logits: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        """See `World.mixed`."""
        declared = BUILTIN.find("law", law.name)
        assert declared is not None
        shares = torch.tensor(weights, dtype=logits[0].dtype) if weights else None
        return LAWS[law.name].combine(torch.stack(list(logits)), shares, **declared.arguments(law))

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
        order, most = self._order(op, tree, start)
        place = {start: -1, **{number: i for i, number in enumerate(order)}}
        rows = [logits.row(tree.path(number)) for number in (start, *order)]
        blank = torch.zeros_like(cast(Tensor, rows[0]))
        rule, declared = RULES[op.rule.name], BUILTIN.find("rule", op.rule.name)
        assert declared is not None
        target = torch.stack([
            blank if row is None else self.probabilities(row) if rule.TARGET == "law" else row
            for row in rows
        ])  # fmt: skip
        numbers = None
        if by is not None:
            bonus = by[most : most + 1] or by[-1:]
            numbers = torch.tensor([*by[: len(order)], *bonus], dtype=torch.float64)[None]
            if declared.draws_by_place:
                numbers = torch.tensor(by, dtype=torch.float64)[None]
        drafted = self._drafted(tree, order, place, rows)
        given = declared.arguments(op.rule)
        verdict = rule.accept_reference(drafted, target[None], numbers, **given)
        count = int(verdict.accepted[0])
        path = tuple(order[i] for i in verdict.path[0].tolist()[:count])
        ended = bool(path) and logits.row(tree.path(path[-1])) is None
        return Judged(tree, path, None if ended else int(verdict.bonus[0]), start)

    def _order(self, op: Accept, tree: Tree, start: int) -> tuple[list[int], int]:
        """Nodes below `start` in the order of their uniforms, and the place of the bonus's.

        In a chain dead nodes take no number; the bonus has the number after those that the round
        may draft at most, so that what is drawn does not depend on how long others went on.
        """
        order = tree.below([start])
        kind = self.types.operand(op, op.tree, self.trip)
        rows = self.types.operand(op, op.target, self.trip)
        assert isinstance(kind, TreeType)
        most = len(order)
        if op.at is None and isinstance(rows, LogitsType):
            most = min(kind.nodes, rows.width)  # nodes without logits are not judged
        if kind.is_chain:
            order = [i for i in order if i in tree.living]
        return order, most

    def _drafted(
        self, tree: Tree, order: list[int], place: Mapping[int, int], rows: list[Tensor | None]
    ) -> DraftedTree:
        nodes = [tree.nodes[number] for number in order]
        laws: list[Tensor] = []
        index: dict[int, int] = {}
        for node in nodes:
            if node.drawn and id(node.logits) not in index:
                index[id(node.logits)] = len(laws)
                laws.append(self.probabilities(node.logits))
        parents = [place.get(node.parent, -1) for node in nodes]
        live = [
            number in tree.living and rows[parent + 1] is not None
            for number, parent in zip(order, parents, strict=True)
        ]
        return DraftedTree(
            tokens=torch.tensor([[node.token for node in nodes]], dtype=torch.int64).view(1, -1),
            parents=tuple(parents),
            live=torch.tensor([live], dtype=torch.bool).view(1, -1),
            laws=torch.stack(laws)[None] if laws else None,
            law_index=tuple(index[id(n.logits)] if n.drawn else -1 for n in nodes)
            if laws
            else None,
            distinct=all(node.how != "draw" for node in nodes if node.drawn),
        )

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

    def looked_up(self, op: Lookup, path: Path, children: int) -> list[tuple[int, int, bool]]:
        """See `World.looked_up`."""
        text = np.array(path, dtype=np.int64)
        match = op.match or (TEXT_MATCH if op.source == TEXT_STATE else (1, 1))
        merged = op.nodes is not None and op.nodes < children * op.length
        wanted = Wanted(match[0], match[-1], children, op.length, op.nodes if merged else None)
        if op.source == TEXT_STATE:
            found = continuations(text, wanted)
        else:
            lengths = np.array([len(text)])
            found = self.sources[op.source].lookup_row(self.row, text[None], lengths, wanted)
        parts = zip(found.tokens[0], found.parents[0], found.live[0], strict=True)
        return [(int(token), int(parent), bool(live)) for token, parent, live in parts]

    def learn(self, source: State, tree: Tree, logits: Logits | None, last: int | None) -> None:
        """See `World.learn`."""
        use = self.sources[source]
        if logits is not None:
            numbers = [i for i in tree.numbers if i in tree.living]
            rows = [(i, logits.row(tree.path(i))) for i in numbers]
            taught = [(tree.path(i)[-1], row) for i, row in rows if row is not None]
            if taught and use.width:
                stacked = torch.stack([row for _, row in taught])
                best = sampling.best(stacked[None], min(use.width, stacked.shape[1]))[0].numpy()
                use.learn_rows(self.row, np.array([token for token, _ in taught]), best)
        elif tree.nodes:
            drafted = len(tree.base) - 1
            runs = [
                np.array(tree.path(i)[drafted:][-(last or 1) :]) for i in tree.leaves if i != ROOT
            ]
            use.learn_runs(self.row, runs)
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


def sources_in(plan: Plan) -> tuple[SourceState, ...]:
    """Sources that a plan declares."""
    return tuple(state for state in plan.states if isinstance(state, SourceState))
