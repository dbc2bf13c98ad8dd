"""A round as a batch calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import torch
from torch import Tensor

from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.state.batch import Batch
from specplan.backends.eager.state.caches import Cache
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.traced.lookups import Lookups, PartOfLookups
from specplan.ir.types.matching import outcomes_of

RUNS_IN_TURN = 2
"""Of a form that runs in turn with others: one run behind another form, and one behind its own."""


@dataclass(slots=True)
class HostRound:
    """A round of one batch, and what the host has for its calls.

    Attributes:
        graph: the round.
        passes: those that may find text missing, and their caches.
        lookups: of the host.
        uniforms: see `RoundTensors`.
        forms: of batches whose requests all have the same outcome of `specplan.ir.types.matching`.
        turns: the forms to run next, where they run in turn.
        given: all tensors of the interface; none before the first call.
        used: slots attended to in the last call.
        program: what runs it; None until it is known.
    """

    graph: RoundGraph
    passes: Sequence[tuple[Cache, PassSpec]]
    lookups: Lookups | PartOfLookups
    uniforms: Tensor
    forms: dict[int, HostRound] = field(default_factory=dict)
    turns: Iterator[HostRound] | None = None
    given: list[Tensor] = field(default_factory=list)
    used: int = 0
    program: Callable[..., Tensor] | None = None

    @classmethod
    def of(cls, graph: RoundGraph, batch: Batch, lookups: Lookups | PartOfLookups) -> HostRound:
        """A round of a batch before its first call."""
        drawn = sum(op.count * times for op, _, times in graph.inputs.uniforms)
        uniforms = torch.zeros(batch.size, max(drawn, 1), dtype=torch.float64)
        passes = [(batch.caches[spec.cache or ""], spec) for spec in graph.first]
        return cls(graph, passes, lookups, uniforms)

    def fitting(self, done: Sequence[bool]) -> HostRound:
        """The form for what the lookups have just proposed, or the next one where they take turns.

        Args:
            done: requests that want no more tokens.
        """
        if not self.forms:
            return self
        assert isinstance(self.lookups, Lookups), "forms have none"
        outcomes = self.lookups.outcomes(done)
        form = self.forms.get(outcomes.pop(), self) if len(outcomes) == 1 else self
        if self.turns is not None:
            form = next(self.turns)
        if form.lookups is not self.lookups:
            form.lookups.run()
        return form

    def take_turns(self) -> None:
        """Run the forms for all outcomes in turn, whatever the lookups propose."""
        every = {
            id(one): one for one in (self.forms.get(o, self) for o in outcomes_of(self.graph.item))
        }
        self.turns = cycle([one for one in every.values() for _ in range(RUNS_IN_TURN)])
