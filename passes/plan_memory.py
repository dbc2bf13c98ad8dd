"""Where the buffers of a round live: one arena, where what is not needed at once shares bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from specplan.cost_models.memory.buffers import Buffer, round_buffers, round_peak
from specplan.cost_models.memory.plan_memory import speculative_slots
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.plan import Plan

ALIGNMENT = 64
"""Bytes that every buffer begins at a multiple of: a line of a CPU's cache."""


@dataclass(frozen=True)
class Placed:
    """A buffer and where it begins in its arena, bytes."""

    buffer: Buffer
    offset: int

    @property
    def end(self) -> int:
        """Where the next buffer may begin."""
        return self.offset + _aligned(self.buffer)


@dataclass(frozen=True)
class Arena:
    """The memory of one round in one bucket, beside weights and states.

    Attributes:
        name: of the round.
        batch: requests.
        text_tokens: of the longest text.
        placed: all buffers, in the order in which they are made.
    """

    name: str
    batch: int
    text_tokens: int
    placed: tuple[Placed, ...]

    @property
    def size(self) -> int:
        """Bytes of the arena."""
        return max((one.end for one in self.placed), default=0)

    @property
    def without_reuse(self) -> int:
        """Bytes of all buffers, each in a place of its own."""
        return sum(_aligned(one.buffer) for one in self.placed)

    @property
    def alive_at_once(self) -> int:
        """Bytes that no arena can do with fewer of: all that some moment needs."""
        return int(round_peak(one.buffer for one in self.placed).total)

    def table(self) -> list[str]:
        """One line in all and one per buffer: offset, bytes, and the steps it is needed in."""
        lines = [
            f"memory of round {self.name}, batch {self.batch}, texts of {self.text_tokens} tokens: "
            f"{self.size:,} bytes in one arena, {self.without_reuse:,} without reuse, "
            f"{self.alive_at_once:,} at once",
            f"{'offset':>15} {'bytes':>15}  {'steps':9} buffer",
        ]
        for one in self.placed:
            buffer = one.buffer
            steps = f"{buffer.first // 2}-{buffer.last // 2}"
            lines.append(f"{one.offset:15,} {_aligned(buffer):15,}  {steps:9} {buffer.name}")
        return lines


def plan_memory(
    plan: Plan, shapes: Mapping[str, ModelShape], batch: int, text_tokens: int
) -> tuple[Arena, ...]:
    """Lifetimes of rows, laws and what passes need -> offsets, one arena for each round.

    Args:
        plan: a lowered plan; steps are counted in its rounds, from 0.
        shapes: by the model's name in the plan.
        batch: requests.
        text_tokens: of the longest text.

    Raises:
        KeyError: the shape of a model is missing.
        InferenceError: the plan is not well typed.
    """
    slots = text_tokens + speculative_slots(plan) + 1
    return tuple(
        Arena(item.name, batch, text_tokens, tuple(_placed(_whole(buffers))))
        for item in plan.rounds
        for buffers in [round_buffers(round_types(plan, item).steps, shapes, batch, slots)]
    )


def _whole(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Buffers that hold anything, in whole bytes."""
    return [replace(one, size=ceil(float(one.size))) for one in buffers if one.size]


def _placed(buffers: Sequence[Buffer]) -> Iterator[Placed]:
    """Offsets, the largest buffers first: each in the smallest gap that holds it.

    "Greedy by size for offset calculation", Pisarchyk and Lee, arXiv 2001.03288, section 5.2.
    """
    known: list[Placed] = []
    order = sorted(range(len(buffers)), key=lambda place: (-float(buffers[place].size), place))
    places: dict[int, Placed] = {}
    for place in order:
        buffer = buffers[place]
        beside = [one for one in known if _together(one.buffer, buffer)]
        places[place] = Placed(buffer, _offset(buffer, beside))
        known.append(places[place])
        known.sort(key=lambda one: one.offset)
    for place in range(len(buffers)):
        yield places[place]


def _offset(buffer: Buffer, beside: Sequence[Placed]) -> int:
    """The start of the smallest gap between buffers, given in order, or of the room behind them."""
    size, end, best = _aligned(buffer), 0, (0, 0)
    placed = False
    for one in beside:
        gap = one.offset - end
        if gap >= size and (not placed or gap < best[0]):
            placed, best = True, (gap, end)
        end = max(end, one.end)
    return best[1] if placed else end


def _together(one: Buffer, other: Buffer) -> bool:
    return one.first <= other.last and other.first <= one.last


def _aligned(buffer: Buffer) -> int:
    return -(-int(buffer.size) // ALIGNMENT) * ALIGNMENT
