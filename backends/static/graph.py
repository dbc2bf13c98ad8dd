"""A round as a function of tensors: what a compiler traces."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.slots import Layers
from specplan.backends.kernels.fused_parts import NOTHING, Fused
from specplan.backends.static.buckets import Sampling
from specplan.backends.static.fusing import form_by
from specplan.backends.static.interface import HostInputs, Interface, RoundTensors
from specplan.backends.static.traced.round_run import RoundRun
from specplan.ir.ops import Forward, When
from specplan.ir.plan import CacheState, Round, walk
from specplan.ir.types.matching import outcome_words
from specplan.runtime.models.modules import Module


class RoundGraph(nn.Module):
    """One round of a lowered plan, for batches of one size.

    Args:
        analysis: of a plan after all passes: no loop is left but those that may end early.
        item: the round.
        models: by the names the plan gives them.
        sampling: of the batches.
        fused: parts that are kernels of our own.
        outcome: it is the form of the round for batches whose requests all have this outcome of
            `specplan.ir.types.matching`; None for the round itself.

    Attributes:
        first: passes that may find text missing, and have the host catch it up.
        pending: by cache and segment, how much text may be missing when the round begins.
        least_text: tokens that the one text of a batch must have.
        angles: by model whose attention is one op of a runtime, cosines and sines of all positions.
        masked: some pass computes a mask over all slots attended to.
    """

    def __init__(
        self,
        analysis: PlanAnalysis,
        item: Round,
        models: Mapping[str, Module],
        sampling: Sampling,
        fused: Fused = NOTHING,
        outcome: int | None = None,
    ) -> None:
        super().__init__()
        self.analysis, self.plan = analysis, analysis.plan
        self.item = item
        self.models = dict(models)
        self.sampling = sampling
        self.fused = fused
        self.outcome = outcome
        self.form = form_by(fused)
        target = models["target"]
        self.scores = target.logits_dtype if analysis.scored else None
        self.interface = Interface.of(self.plan, models, analysis.scored)
        self.inputs = HostInputs.of(self.plan, item, target.vocab_size)
        self.model_of = {
            str(state.name): state.model
            for state in self.plan.states
            if isinstance(state, CacheState)
        }
        self.first = _first(item, analysis)
        self.pending = {name: _pending(self.first, name) for name in self.model_of}
        self.least_text = max((spec.pending for spec in self.first if fused.joined), default=0)
        self.angles: dict[str, tuple[Tensor, Tensor]] = {}
        forwards = [op for op in walk(item.ops) if isinstance(op, Forward)]
        self.masked = any(op.model not in fused.attention for op in forwards)

    @property
    def name(self) -> str:
        """Of the round, and of its form: `decode`, `decode-matched`, `decode-unmatched`."""
        return self.item.name + outcome_words(self.outcome)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Run the round.

        Args:
            tensors: as `Interface.read` names them; texts, caches and tracks are written to.

        Returns:
            The round's report, see `interface.report`.
        """
        return self.run(self.interface.read(tensors))

    def run(self, given: RoundTensors) -> Tensor:
        """The same with tensors by their names."""
        return RoundRun(self, given).report()


def _first(item: Round, analysis: PlanAnalysis) -> tuple[PassSpec, ...]:
    """Passes that may find text missing when they begin: no earlier one has taken it all in."""
    first: dict[object, PassSpec] = {}
    taken: set[tuple[str | None, Layers]] = set()
    conditions = [op for op in walk(item.ops) if isinstance(op, When)]
    sometimes = {id(op) for one in conditions for op in walk(one.body.ops)}
    for op in walk(item.ops):
        if not isinstance(op, Forward) or op.cache is None:
            continue
        spec = analysis.pass_specs[id(op)]
        parts = {(spec.cache, span) for span in spec.segments}
        if not parts <= taken:
            first.setdefault((op.cache, op.layers, op.write), spec)
        if not spec.scratch and id(op) not in sometimes:
            taken |= parts
    return tuple(first.values())


def _pending(first: tuple[PassSpec, ...], cache: str) -> dict[Layers, int]:
    """By segment, the most text that it may lack once the host has caught up all first passes."""
    most: dict[Layers, int] = {}
    for spec in first:
        for span in spec.segments if spec.cache == cache else ():
            bound = max(spec.pending, 1)
            most[span] = min(most.get(span, bound), bound)
    return most
