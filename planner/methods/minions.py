"""Several drafters vote, and what most of them agree on is verified.

Minions (Wang et al. 2024, arXiv 2402.15678): small models draft a chain each, the chains are merged
into a tree, a node weighs what the models that drafted its path weigh together, and the heaviest
path is the draft. Here a drafter's vote for a path weighs as much as the drafter finds it likely;
the text itself (prompt lookup) votes too, for what followed its end before, and is sure of it. The
heaviest nodes up to a number are verified: the path that most agree on, and others where they do
not. Left out: weights that follow past success, lengths that are set on line, and drafting while
the target verifies. Votes are for best tokens at every temperature, certain proposals, so that the
target's law is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.joined import commits, joined_chains, models_of
from specplan.planner.templates.plan_text import judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

SHAPES = ((2, 3), (3, 4), (4, 6), (6, 9))
"""Tokens that each drafts, and verified nodes."""


@dataclass(frozen=True)
class MinionsOptions(Options):
    """Who votes, and how much is verified.

    Attributes:
        drafters: names of draft models, and `text`.
        length: tokens that each drafts.
        nodes: verified tokens, the heaviest ones.
    """

    drafters: tuple[str, ...]
    length: int
    nodes: int

    @property
    def words(self) -> str:
        """`3 tokens by draft and text, the best 4`."""
        return f"{self.length} tokens by {' and '.join(self.drafters)}, the best {self.nodes}"


class Minions(ProfiledByRunning[MinionsOptions]):
    """Few verified tokens for many drafters."""

    name: ClassVar[str] = "minions"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = "all drafters draft, and what most of them agree on is verified"
    paper: ClassVar[str] = "Wang et al. 2024, arXiv 2402.15678"
    sources: ClassVar[tuple[str, ...]] = ("prompt_lookup",)
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "votes of all drafters"
    domains: ClassVar[Mapping[str, str]] = {
        "drafters": "who votes",
        "length": "tokens that each drafts",
        "nodes": "verified tokens, the heaviest ones",
    }

    def settings(self, models: Sequence[str]) -> Iterator[MinionsOptions]:
        """All draft models and the text, a few sizes."""
        if models:
            voters = (*models, TEXT.name)
            yield from (MinionsOptions(voters, *shape) for shape in SHAPES)

    def plan(self, facts: ProblemFacts, options: MinionsOptions) -> Plan:
        """Draft side by side, merge, keep the heaviest, verify, accept."""
        drafters = options.drafters
        body = f"""{joined_chains(drafters, options.length, drawn=False, result="pool")}
%best = pick %pool of=all best={options.nodes}
%c = prune %pool to=%best
{judge("%c", options.nodes, rule=None if facts.greedy else "recursive")}
{commits(drafters)}"""
        return single_round_plan(facts, self.name, models_of(drafters), body)


METHOD = Minions()
