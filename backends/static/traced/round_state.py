"""What a traced round works on: its texts, caches and values, and what ops ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from specplan.backends.eager.op_runner import OpRunner
from specplan.backends.eager.sources import wanted_of
from specplan.backends.eager.state.slots import overlaps
from specplan.backends.ops.accept import Form
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.backends.static.interface import RoundTensors
from specplan.backends.static.traced.caches import RoundCache
from specplan.backends.static.traced.states import value_of
from specplan.backends.static.traced.texts import RoundTexts
from specplan.ir import ops as ir
from specplan.ir.plan import ValueState
from specplan.ir.values import State
from specplan.runtime.sampling import SamplingSettings

if TYPE_CHECKING:
    from specplan.backends.static.graph import RoundGraph


class RoundState(OpRunner):
    """A round's texts, caches and values, and what they say of them to whoever runs ops.

    Attributes:
        caches: by name.
        active: requests that take part in the region that runs, bool `[B]`; None for all.
        failed: by request, 1 and the place of the first formula that had no value, int64 `[B]`;
            None where none could fail.
        lookup_column: columns of the host's lookups that were read so far.
        lessons: what sources will learn, see `interface.Lesson`.
    """

    batch: RoundTexts

    def __init__(self, graph: RoundGraph, given: RoundTensors) -> None:
        super().__init__()
        self.graph, self.given, self.analysis = graph, given, graph.analysis
        self.scores, self.models = graph.scores, graph.models
        settings = SamplingSettings(
            temperature=given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            greedy=graph.sampling.greedy,
            truncated=graph.sampling.truncated,
        )
        self.batch = RoundTexts(given, settings)
        for name in self.analysis.read_from_root:
            self.batch.tracks[name].at_root = not self.batch.tracks[name].deeper
        self.caches = {name: RoundCache(graph, given, name) for name in given.stores}
        self.values = dict(given.values)
        self.uniforms = {id(op): first for op, first, _ in graph.inputs.uniforms}
        self.active: Tensor | None = None
        self.running = ~given.done
        self.lookup_column = 0
        self.failed: Tensor | None = None
        self.lessons: list[Tensor] = []

    def taking_part(self) -> Tensor | None:
        """Which requests take part in the region that runs, bool `[B]`; None for all."""
        return self.active

    def counting(self) -> Tensor:
        """See `OpRunner.counting`."""
        wanted = ~self.batch.done
        return wanted if self.active is None else wanted & self.active

    def continuations(self, op: ir.Lookup, at: Nodes) -> Continuations:
        """Those that the host looked up before the round; see `OpRunner.continuations`."""
        size, first = wanted_of(op, at.width).size, self.lookup_column
        self.lookup_column = stop = first + at.width * size
        given = (self.given.lookup_tokens, self.given.lookup_parents, self.given.lookup_live)
        tokens, parents, live = (part[:, first:stop].reshape(-1, size) for part in given)
        return tokens, parents, live

    def lag(self, state: State, layers: Any) -> Tensor:
        """See `OpRunner.lag`."""
        cache = self.caches[state]
        inside = [span for span in cache.segments if overlaps(span, layers)]
        return (self.batch.ends - cache.resident(inside, scratch=False))[:, 0].double()

    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """See `OpRunner.state`."""
        state = self.graph.plan.state(op.state)
        assert isinstance(state, ValueState)
        return value_of(state, self.graph.interface.parts(op.state), self.values[op.state])

    def form(self, op: ir.Op) -> Form:
        """See `OpRunner.form`."""
        return self.graph.form
