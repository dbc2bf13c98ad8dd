"""What the target accepts of drafts that hang on earlier rounds: the rounds themselves are run.

What is told of a round is told of the place of the text where it began. Replayed from the first
place, such lengths give the very rounds that ran. Of a loop that may end early it is told how many
trips it took.
"""

from __future__ import annotations

from collections.abc import Sequence

from specplan.cost_models.acceptance.evidence.rounds import NO_ROUND
from specplan.ir.schedule import select_round
from specplan.runtime.executable import Executable
from specplan.runtime.requests import Request

Places = tuple[tuple[int, int], ...]
"""By place of an output, accepted tokens, and trips of the loop of the round that began there."""


def rehearse(executable: Executable, requests: Sequence[Request]) -> list[Places]:
    """Accepted tokens of drafts, and trips, by the places of outputs where their rounds began.

    Args:
        executable: of the plan whose rounds are run, as its schedule says.
        requests: whose outputs the rounds emit, a batch.

    Returns:
        For each request one entry per token of its output. Places within a round tell what was left
        of its draft, and of no trips: `NO_ROUND`, as do all where the plan has not one loop that
        may end early. The last round, which a limit or a stop token cut, counts for what was seen
        of it.
    """
    session = executable.start(requests)
    ran: list[list[tuple[int, int]]] = [[] for _ in requests]
    name: str | None = None
    try:
        session.prefill()
        while not all(session.done):
            left = [row for row, done in enumerate(session.done) if not done]
            name = select_round(
                executable.plan,
                batch=len(left),
                context=max(session.lengths[row] for row in left),
                emitted=max(sum(count for count, _ in row) for row in ran),
                current=name,
            )
            step = session.step(name)
            told = step.trips if step.trips is not None and step.trips.shape[1] == 1 else None
            for row in left:
                trips = NO_ROUND if told is None else int(told[row, 0])
                ran[row].append((int(step.counts[row]), trips))
    finally:
        session.release()
    return [_places(rounds) for rounds in ran]


def _places(rounds: Sequence[tuple[int, int]]) -> Places:
    """What rounds tell of the places of a text, from their emitted tokens and trips."""
    if not rounds:
        return ()
    *whole, last = (count for count, _ in rounds)
    lengths = [left for count in whole for left in reversed(range(count))]
    lengths += range(last, 0, -1)
    begun = [number for count, trips in rounds for number in _first(trips, count)]
    return tuple(zip(lengths, begun, strict=True))


def _first(trips: int, places: int) -> list[int]:
    """Trips at the first of a round's places."""
    return [trips, *(NO_ROUND,) * (places - 1)][:places]
