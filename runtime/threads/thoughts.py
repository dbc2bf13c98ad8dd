"""Threads `thoughts`: a tree of thoughts, proposed and judged side by side; the best go on.

Tree of Thoughts (Yao et al. 2023, arXiv 2305.10601), whose branches SeeD (Wang et al. 2024, arXiv
2406.18200) drafts and verifies together: from each state that went on, `width` thoughts are
proposed, one line each; the target gives each a number; and the `width` best go on, `depth` times.
A plan's drafts and its target run all branches of a level in one batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from specplan.runtime.threads.thread import Branches, Thread

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
JUDGE_TOKENS = 6
"""Tokens in which a thought is judged."""


@dataclass(frozen=True)
class Thoughts:
    """Levels of proposals and of judgements.

    Attributes:
        width: proposals from each state, and states that go on.
        depth: levels.
        judge: what asks for a number, after the thoughts up to there.
    """

    width: int
    depth: int
    judge: str

    def begin(self, threads: Sequence[Thread]) -> Sequence[Thread]:
        """The next level's thoughts, or the judgements of this one's, once all others ended."""
        by_name, states = {one.name: one for one in threads}, [("", "")]
        for _ in range(self.depth):
            proposals = [
                Thread(name=f"{name}/{number}", after=f"{text}\n", stops=("\n",))
                for name, text in states
                for number in range(self.width)
            ]
            if not _ended(proposals, by_name):
                return proposals
            after = [(one.name, f"{one.after!s}{by_name[one.name].text}") for one in proposals]
            judged = [
                Thread(
                    name=f"{name}?", after=f"{text}\n{self.judge}", most=JUDGE_TOKENS, stops=("\n",)
                )
                for name, text in after
            ]
            if not _ended(judged, by_name):
                return judged
            after.sort(key=lambda state: -_number(by_name[f"{state[0]}?"].text))
            states = after[: self.width]
        return []

    def join(self, threads: Sequence[Thread]) -> str:
        """The thoughts of the best state of the last level, a line each."""
        by_name = {one.name: one for one in threads}
        level = [n for n in by_name if n.count("/") == self.depth and not n.endswith("?")]
        best = max(level, key=lambda name: _number(by_name[f"{name}?"].text))
        steps = best.split("/")
        line = ("/".join(steps[:end]) for end in range(2, self.depth + 2))
        return "\n".join(by_name[name].text for name in line)


def _ended(wanted: Sequence[Thread], by_name: dict[str, Thread]) -> bool:
    return all(one.name in by_name and by_name[one.name].ended for one in wanted)


def _number(text: str) -> float:
    """The first number of a text; none is worst of all."""
    match = _NUMBER.search(text)
    return float(match.group()) if match else float("-inf")


def branches(judge: str, width: int = 3, depth: int = 3) -> Branches:
    """Threads by the size of the tree and what asks for a judgement."""
    return Thoughts(width, depth, judge)
