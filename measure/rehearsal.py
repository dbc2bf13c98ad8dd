"""What the target accepts of drafts that hang on earlier rounds: the rounds themselves are run.

What is told of a round is told of the place of the text where it began. Replayed from the first
place, such lengths give the very rounds that ran.
"""

from __future__ import annotations

from specplan.runtime.executable import Executable
from specplan.runtime.requests import Request


def rehearse(executable: Executable, request: Request) -> tuple[int, ...]:
    """Accepted tokens of a draft, by the place of the output where its round began.

    Args:
        executable: of the plan whose rounds are run; a plan of one round.
        request: whose output the rounds emit.

    Returns:
        One number per token of the output. Places within a round tell what was left of its draft.
        The last round, which a limit or a stop token cut, counts for what was seen of it.
    """
    session = executable.start([request])
    name = executable.plan.rounds[0].name
    emitted: list[int] = []
    try:
        session.prefill()
        while not session.done[0]:
            emitted.append(int(session.step(name).counts[0]))
    finally:
        session.release()
    if not emitted:
        return ()
    *whole, last = emitted
    lengths = [left for count in whole for left in reversed(range(count))]
    return (*lengths, *range(last, 0, -1))
