"""Threads `points`: an outline, and then a text for each of its points, all at once.

Skeleton-of-Thought (Ning et al. 2023, arXiv 2307.15337): the target is asked for a skeleton, and
then to expand each point of it in a text of its own; the answer is their sequence. With a question
for the router, the target is asked first, in a few tokens, whether the request is one to be
answered so (SoT-R); where it does not say yes, the request is continued as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from specplan.runtime.threads.thread import Branches, Thread

_POINT = re.compile(r"^[ \t]*(\d+)[.)][ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
ROUTE_TOKENS = 4
"""Tokens in which the router answers."""


@dataclass(frozen=True)
class Points:
    """A thread for the router, one for the outline, one for each point.

    Attributes:
        skeleton: what asks for the outline; the request stands before it.
        point: what asks for a point; `{n}` is its number and `{point}` its words.
        route: what asks whether to do so at all; empty to do so always.
    """

    skeleton: str
    point: str
    route: str

    def begin(self, threads: Sequence[Thread]) -> Sequence[Thread]:
        """The router, then the outline, then all of its points."""
        by_name = {one.name: one for one in threads}
        if self.route:
            route = by_name.get("route")
            if route is None:
                asked = f"\n{self.route}\n"
                return [Thread(name="route", after=asked, most=ROUTE_TOKENS, stops=("\n",))]
            if not route.ended:
                return []
            if not route.text.strip().lower().startswith("yes"):
                return [Thread(name="answer")]
        asked = f"\n{self.skeleton}\n1."
        outline = by_name.get("skeleton")
        if outline is None:
            return [Thread(name="skeleton", after=asked)]
        if not outline.ended:
            return []
        return [
            Thread(
                name=f"point {number}",
                after=f"{asked}{outline.text}\n{self._asked(number, words)}\n{number}. {words}",
            )
            for number, words in _points(outline)
        ]

    def _asked(self, number: str, words: str) -> str:
        return self.point.replace("{n}", number).replace("{point}", words)

    def join(self, threads: Sequence[Thread]) -> str:
        """The points with their texts, in order; else the outline, or the answer."""
        by_name = {one.name: one for one in threads}
        if "answer" in by_name:
            return by_name["answer"].text
        outline = by_name["skeleton"]
        points = _points(outline)
        if not points:
            return outline.text
        bodies = ((f"{n}. {words}", by_name[f"point {n}"].text.rstrip()) for n, words in points)
        return "\n".join(f"{head}{text}" for head, text in bodies)


def _points(outline: Thread) -> list[tuple[str, str]]:
    """Numbers and words of an outline's points, each number once."""
    points: dict[str, str] = {}
    for number, words in _POINT.findall(f"1.{outline.text}"):
        points.setdefault(number, words)
    return list(points.items())


def branches(skeleton: str, point: str, route: str = "") -> Branches:
    """Threads by what asks for an outline and for its points."""
    return Points(skeleton, point, route)
