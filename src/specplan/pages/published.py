"""Published systems: which methods run them, and why nothing runs the others.

The systems, their papers and the reasons are data, `published.yaml`. A system is run by the methods
that cite its paper and run on a backend of this package.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from specplan.ir.text.yaml_text import read_yaml
from specplan.planner.method import Method

FILE = "published.yaml"


@dataclass(frozen=True)
class Published:
    """A published system.

    Attributes:
        id: its number here: a family's letter and a number.
        title: what its authors call it.
        paper: arXiv id of its paper, or what else it is cited by.
        reason: why no method runs it, in one sentence; empty where one does.
        differs: how it is run here in another way than it was published, in one sentence.
    """

    id: str
    title: str
    paper: str
    reason: str = ""
    differs: str = ""

    @property
    def link(self) -> str:
        """The paper in Markdown."""
        number = self.paper.replace(".", "")
        on_arxiv = number.isdecimal() and self.paper.index(".") == 4
        return f"[{self.paper}](https://arxiv.org/abs/{self.paper})" if on_arxiv else self.paper

    def run_by(self, methods: Iterable[Method[Any]]) -> tuple[str, ...]:
        """Names of the runnable methods that cite its paper."""
        return tuple(one.name for one in methods if one.runnable and self.paper in one.paper)


@cache
def published() -> tuple[Published, ...]:
    """All published systems, in the order of the file."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    rows, _ = read_yaml(text, FILE)
    return tuple(Published(**row) for row in rows)


def not_here(methods: Iterable[Method[Any]]) -> list[dict[str, str]]:
    """Systems that no method runs, ready for JSON: paper, title and reason."""
    known = tuple(methods)
    return [
        {"paper": one.paper, "title": one.title, "reason": one.reason}
        for one in published()
        if not one.run_by(known)
    ]


def published_rows(methods: Iterable[Method[Any]]) -> list[tuple[str, ...]]:
    """Rows of a table: title, paper, and the methods that run it or the reason why none does."""
    known = tuple(methods)
    return [(one.title, one.link, _words(one, known)) for one in published()]


def _words(one: Published, methods: Iterable[Method[Any]]) -> str:
    names = ", ".join(f"`{name}`" for name in one.run_by(methods))
    return f"{names}. {one.differs}" if one.differs else names or one.reason
