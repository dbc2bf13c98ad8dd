"""What the target accepts of drafts that depend on earlier rounds: the rounds themselves are run.

A round is recorded at the place of the text where it began. Replayed from the first place, such
lengths give the very rounds that ran. For a loop that may end early, its trips are recorded too.
"""

from __future__ import annotations

from collections.abc import Sequence

from specplan.cost_models.acceptance.evidence.rounds import NO_ROUND
from specplan.runtime.executable import Executable
from specplan.runtime.generate import steps
from specplan.runtime.requests import Request

Places = tuple[tuple[int, int], ...]
"""Per place of an output: accepted tokens, and trips of the loop of the round that began there."""


def run_rounds(executable: Executable, requests: Sequence[Request]) -> list[Places]:
    """Accepted tokens of drafts, and trips, by the places of outputs where their rounds began.

    Args:
        executable: of the plan whose rounds are run, as its schedule selects them.
        requests: a batch.

    Returns:
        For each request one entry per token of its output. A place within a round has the rest of
        the round's draft, and `NO_ROUND` trips, as have all places if the plan has not exactly one
        loop that may end early. The last round, which a limit or a stop token cut, counts as far
        as it got.
    """
    session = executable.start(requests)
    ran: list[list[tuple[int, int]]] = [[] for _ in requests]
    try:
        session.prefill()
        for _, left, step in steps(executable.plan, session):
            one_loop = step.trips is not None and step.trips.shape[1] == 1
            for row in left:
                trips = int(step.trips[row, 0]) if step.trips is not None and one_loop else NO_ROUND
                ran[row].append((len(step.tokens[row]), trips))
    finally:
        session.release()
    return [_places(rounds) for rounds in ran]


def _places(rounds: Sequence[tuple[int, int]]) -> Places:
    """Places of a text, from the emitted tokens and the trips of its rounds."""
    if not rounds:
        return ()
    *whole, last = (count for count, _ in rounds)
    lengths = [left for count in whole for left in reversed(range(count))]
    lengths += range(last, 0, -1)
    begun = [n for count, trips in rounds for n in [trips, *(NO_ROUND,) * (count - 1)][:count]]
    return tuple(zip(lengths, begun, strict=True))
