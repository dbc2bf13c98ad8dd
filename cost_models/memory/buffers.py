"""Buffers of a round, without its states: how large, and from when to when they are needed.

A value lives from the op that makes it to the last one that reads it, as the interpreter holds it
(`specplan.ir.types.lifetimes`). What an op needs, it says itself (`Op.bytes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specplan.cost_models.cost import Quantity
from specplan.cost_models.memory.workspace import (
    MemoryPeak,
    PassParts,
    pass_parts,
    peak_of,
    row_bytes,
)
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.needs import Allocation
from specplan.ir.op import Step
from specplan.ir.types.value_types import Lineage, LogitsType, TreeType


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are needed for a while.

    A step takes two moments: a pass runs its layers in the first and makes logits in the second.

    Attributes:
        name: what it holds.
        size: bytes, a number or an array [cells].
        first: the moment in which it is made.
        last: the last one in which it is read.
        logits: it is over the vocabulary.
    """

    name: str
    size: Quantity
    first: int
    last: int
    logits: bool = False


def round_buffers(
    steps: Sequence[Step], shapes: Mapping[str, ModelShape], batch: Quantity, slots: Quantity
) -> tuple[Buffer, ...]:
    """All buffers of a round, in the order in which they are made.

    Args:
        steps: of the round, with their static types.
        shapes: by the model's name in the plan.
        batch: requests, a number or an array [cells].
        slots: cache slots per request, a number or an array [cells].
    """
    until, sizes = _Lifetimes(steps), _Sizes(shapes, batch, slots)
    return tuple(
        Buffer(one.name, one.size, 2 * place + one.first, until.of(place, step, one), one.logits)
        for place, step in enumerate(steps)
        for one in step.op.bytes(step, sizes)
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes in a batch whose caches have a given number of slots."""

    shapes: Mapping[str, ModelShape]
    batch: Quantity
    slots: Quantity

    def probabilities(self, nodes: int) -> Quantity:
        """Bytes of one vector per node over the target's vocabulary."""
        return row_bytes(self.shapes["target"], self.batch, nodes)

    def forward(self, model: str, tokens: int, rows: int) -> PassParts:
        """What a pass takes."""
        return pass_parts(self.shapes[model], self.batch, tokens, self.slots, rows)


def round_peak(buffers: Iterable[Buffer]) -> MemoryPeak:
    """What is alive at once, at most."""
    highest, now = MemoryPeak(), MemoryPeak()
    alive: list[Buffer] = []
    made: dict[int, list[Buffer]] = {}
    for buffer in buffers:
        made.setdefault(buffer.first, []).append(buffer)
    for moment in sorted(made):
        alive = [buffer for buffer in alive if buffer.last >= moment] + made[moment]
        logits = sum(buffer.size for buffer in alive if buffer.logits)
        now = MemoryPeak(sum(buffer.size for buffer in alive if not buffer.logits), logits)
        highest = peak_of(highest, now)
    return highest


class _Lifetimes:
    """The last step that reads each value."""

    def __init__(self, steps: Sequence[Step]) -> None:
        drawn = {
            id(given.lineage)
            for step in steps
            if step.op.draws
            for given in step.gives
            if isinstance(given, TreeType)
        }
        self._rows: dict[int, int] = {}
        self._laws: dict[int, int] = {}
        made = {id(given) for step in steps for given in step.gives}
        own = {id(given) for step in steps if step.op.owns_probs for given in step.gives}
        self._joined = 0  # rows that come out of a region: from which pass is not known
        self._reshaped = 0  # trees made of others: whose laws they hold is not known
        for place, step in enumerate(steps):
            for operand in step.reads.values():
                if isinstance(operand, LogitsType):
                    self._rows[id(operand)] = place
                    self._joined = self._joined if id(operand) in made else place
                elif isinstance(operand, TreeType):
                    grown = next((one for one in _above(operand.lineage) if id(one) in drawn), None)
                    if grown is not None:
                        self._laws[id(grown)] = place
                    elif operand.drawn and id(operand) not in own:
                        self._reshaped = place

    def of(self, place: int, step: Step, allocation: Allocation) -> int:
        """The last moment in which something is needed."""
        match allocation.last:
            case "logits":
                return 2 * self.of_rows(place, step) + 1
            case "probs":
                (tree,) = step.gives
                assert isinstance(tree, TreeType)
                return 2 * self.of_laws(place, tree) + 1
            case moment:
                return 2 * place + moment

    def of_rows(self, place: int, step: Step) -> int:
        """The last step that reads rows of a forward."""
        read = (self._rows.get(id(given), place) for given in step.gives)
        return max([place, self._joined, *read])

    def of_laws(self, place: int, tree: TreeType) -> int:
        """The last step that reads a tree that holds these laws and no later ones."""
        return max(place, self._reshaped, self._laws.get(id(tree.lineage), place))


def _above(lineage: Lineage | None) -> Iterator[Lineage]:
    """A tree and those that it extends, the largest first."""
    while lineage is not None:
        yield lineage
        lineage = lineage.above
