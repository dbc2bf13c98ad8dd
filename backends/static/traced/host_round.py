"""A round as a batch calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.state.batch import Batch
from specplan.backends.eager.state.caches import Cache
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.traced.lookups import Lookups


@dataclass(slots=True)
class HostRound:
    """A round of one batch, and what the host has for its calls.

    Attributes:
        graph: the round.
        passes: those that may find text missing, and their caches.
        lookups: of the host.
        uniforms: see `RoundTensors`.
        bare: the form for when lookups propose nothing; None where there is none.
        given: all tensors of the interface; none before the first call.
        used: slots attended to in the last call.
        program: what runs it; None until it is known.
    """

    graph: RoundGraph
    passes: Sequence[tuple[Cache, PassSpec]]
    lookups: Lookups
    uniforms: Tensor
    bare: HostRound | None = None
    given: list[Tensor] = field(default_factory=list)
    used: int = 0
    program: Callable[..., Tensor] | None = None

    @classmethod
    def of(cls, graph: RoundGraph, batch: Batch, lookups: Lookups) -> HostRound:
        """A round of a batch before its first call."""
        drawn = sum(op.count * times for op, _, times in graph.inputs.uniforms)
        uniforms = torch.zeros(batch.size, max(drawn, 1), dtype=torch.float64)
        passes = [(batch.caches[spec.cache or ""], spec) for spec in graph.first]
        return cls(graph, passes, lookups, uniforms)

    def fitting(self, done: Sequence[bool]) -> HostRound:
        """The form for what its lookups have just proposed.

        Args:
            done: requests that want no more tokens.
        """
        if self.bare is None or self.lookups.proposed(done):
            return self
        return self.bare
