"""A round as a function of tensors: what a compiler traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from specplan.backends.kernels.fitting import NOTHING, Fused
from specplan.backends.reference.choosing import reads_scores
from specplan.backends.reference.one_pass import pending_of
from specplan.backends.static.buckets import Sampling
from specplan.backends.static.fusing import form_by
from specplan.backends.static.interface import HostInputs, Interface, RoundTensors
from specplan.backends.static.tracing import RoundRun
from specplan.ir.lifetimes import last_reads
from specplan.ir.ops import Forward
from specplan.ir.plan import Plan, Round, walk, walk_plan
from specplan.ir.values import State
from specplan.runtime.models import CausalModel


class RoundGraph(nn.Module):
    """One round of a lowered plan, for batches of one size.

    Args:
        plan: after all passes: no loop is left but those that may end early.
        item: the round.
        models: by the names the plan gives them.
        sampling: of the batches.
        fused: parts that are kernels of our own.

    Attributes:
        pending: caches, and how much text of theirs the round takes that no model has seen yet.
        masked: some pass computes a mask over all slots attended to.
    """

    def __init__(
        self,
        plan: Plan,
        item: Round,
        models: Mapping[str, CausalModel],
        sampling: Sampling,
        fused: Fused = NOTHING,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.item = item
        self.models = dict(models)
        self.sampling = sampling
        self.fused = fused
        self.form = form_by(fused)
        self.interface = Interface.of(plan, models)
        self.inputs = HostInputs.of(plan, item, models["target"].vocab_size)
        self.pending = tuple(_pending(item))
        self.masked = any(
            isinstance(op, Forward) and op.model not in fused.attention for op in walk(item.ops)
        )
        self.spent = last_reads(plan)
        self.scored = any(map(reads_scores, walk_plan(plan)))

    def forward(self, *tensors: Tensor) -> Tensor:
        """Run the round.

        Args:
            tensors: as `Interface.read` names them; texts, caches and tracks are written to.

        Returns:
            As `interface.packed` has it.
        """
        return self.run(self.interface.read(tensors))

    def run(self, given: RoundTensors) -> Tensor:
        """The same with tensors by their names."""
        return RoundRun(self, given).result()

    def judged(self, given: RoundTensors) -> Tensor:
        """Run the round, and give the logits `[B, R, V]` that the target judged by."""
        run = RoundRun(self, given)
        run.result()
        assert run.rows is not None, "the round accepts something"
        return run.rows.logits


def _pending(item: Round) -> Iterator[tuple[str, int]]:
    """Caches, and the most text that the first pass over each of them and its layers takes."""
    seen = set()
    for op in walk(item.ops):
        if isinstance(op, Forward) and (op.cache, op.layers, op.write) not in seen:
            seen.add((op.cache, op.layers, op.write))
            yield op.cache or State(""), max(pending_of(op), 1)
