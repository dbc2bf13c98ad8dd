"""A cascade of drafters: each reviews what smaller ones draft, down to the text itself.

Cascade speculative drafting (Chen et al. 2023, arXiv 2312.11462). Vertical: the text proposes to
the smallest model, which keeps what it finds likely and adds a token; what it drafts so in a few
turns is reviewed by the next larger model in the same way. Horizontal: the last tokens, which are
rarely accepted, are the text's alone. Reviews between drafters are lenient (rule `relaxed`); the
target's is not: drafts are given to it, certain proposals, and its distribution is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, permutations, product
from textwrap import indent
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import cache_of, draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LENIENT = "relaxed(top=3, delta=0.3)"


@dataclass(frozen=True)
class CascadeMatrixOptions(Options):
    """Who reviews whom, how often, and how much the text proposes."""

    reads = "{turns} turns of each of {drafters} over {length} of the text, {tail} more of it"

    drafters: Annotated[tuple[str, ...], Option("draft models, the largest first", drafts=True)]
    turns: Annotated[int, Option("passes of a model for one of the next larger")]
    length: Annotated[int, Option("tokens that the text proposes to the smallest model")]
    tail: Annotated[int, Option("tokens of the text at the end")]

    @property
    def nodes(self) -> int:
        """Drafted tokens: every review adds one."""
        nodes = self.length
        for _ in self.drafters:
            nodes = self.turns * (nodes + 1)
        return nodes + self.tail


class CascadeMatrix(ProfiledByRunning[CascadeMatrixOptions]):
    """Pays where one draft model is good and slow, and another fast."""

    summary = "draft models review each other's drafts leniently, the smallest those of the text"
    paper = "Chen et al. 2023, arXiv 2312.11462"
    differs = (
        "All entries of the matrix of lengths are alike, and the lowest level has no bigrams "
        "where the text has no match."
    )
    sources = ("prompt_lookup",)
    family = "cascades of drafters"
    shapes = ((1, 2, 2), (2, 2, 2), (2, 3, 4))

    def settings(self, models: Sequence[str]) -> Iterator[CascadeMatrixOptions]:
        """Every draft model, and every two of them in either order."""
        levels = chain(permutations(models, 1), permutations(models, 2))
        return (CascadeMatrixOptions(one, *size) for one, size in product(levels, self.shapes))

    def plan(self, facts: ProblemFacts, options: CascadeMatrixOptions) -> Plan:
        """Loops in loops, from the largest model to the text; then the tail."""
        copied = f"lookup @text {{}} match={print_atom(LOOKUP_MATCH)} length={{}}"
        drafted = f"""%t0 = root
{_reviewed("%chain", "%t0", options, options.drafters, copied)}
%end = pick %chain of=leaves
%c = {copied.format("%chain at=%end", options.tail)}"""
        return draft_and_verify(
            facts, self, drafted, options.nodes, models=options.drafters, rule="deterministic"
        )


def _reviewed(
    result: str, tree: str, options: CascadeMatrixOptions, drafters: Sequence[str], copied: str
) -> str:
    """A tree with what some models drafted, each reviewing what those behind it did."""
    if not drafters:
        return f"{result} = {copied.format(f'{tree} at={tree}_tip', options.length)}"
    model, *smaller = drafters
    grown, tip = f"%{model}_tree", f"%{model}_tree_tip"
    drafts = _reviewed(f"%{model}_drafts", grown, options, smaller, copied)
    pending = options.tail + options.length + 2  # of what the last round emitted, it ran the rest
    body = f"""{tip} = pick {grown} of=leaves
{drafts}
%{model}_new = pick %{model}_drafts of=from at={tip}
%{model}_logits = forward {model} %{model}_new cache={cache_of(model)} pending={pending}
%{model}_kept = accept %{model}_drafts target=%{model}_logits rule={LENIENT} at={tip}
%{model}_left = adopt %{model}_drafts %{model}_kept
yield %{model}_left"""
    return f"{result} = repeat {options.turns} ({grown} = {tree}) {{\n{indent(body, '    ')}\n}}"


METHOD = CascadeMatrix()
