"""Several drafters' chains, merged into one tree that the target verifies in one pass.

SpecInfer (Miao et al. 2023, arXiv 2305.09781), its merge of several speculators: each drafts a
chain; the chains are joined at the root, and what hangs below equal tokens goes on together. The
tree is judged by its multi-step rule: children of a node one after another, each against the law of
the drafter that drew it, which keeps the target's law at every temperature; the paper takes the
children in random order, here they stand in the drafters' order. At temperature 0 chains are best
choices. Drafters are two draft models, or a draft model and the text itself (prompt lookup), whose
continuation counts as certain. Trees of one model's first ranks, the paper's expansion, are among
those of `draft_model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.joined import commits, joined_chains, models_of
from specplan.planner.templates.plan_text import judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LENGTHS = (2, 3, 4, 6)


@dataclass(frozen=True)
class SpecInferOptions(Options):
    """Who drafts, and how much.

    Attributes:
        drafters: names of draft models, or `text`.
        length: tokens of each chain.
    """

    drafters: tuple[str, ...]
    length: int

    @property
    def nodes(self) -> int:
        """Drafted tokens, those that several drafters agree on counted for each."""
        return len(self.drafters) * self.length

    @property
    def words(self) -> str:
        """`chains of 3 by draft and text, merged`."""
        return f"chains of {self.length} by {' and '.join(self.drafters)}, merged"


class SpecInfer(ProfiledByRunning[SpecInferOptions]):
    """Pays where drafters err at different places."""

    name: ClassVar[str] = "specinfer"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = "chains of two drafters, merged into one tree"
    paper: ClassVar[str] = "Miao et al. 2023, arXiv 2305.09781"
    sources: ClassVar[tuple[str, ...]] = ("prompt_lookup",)
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "merged chains"
    domains: ClassVar[Mapping[str, str]] = {
        "drafters": "who drafts a chain each",
        "length": "tokens of each chain",
    }

    def settings(self, models: Sequence[str]) -> Iterator[SpecInferOptions]:
        """Every two draft models, and every one with the text, by length."""
        for pair in combinations([*models, TEXT.name], 2):
            yield from (SpecInferOptions(pair, length) for length in LENGTHS)

    def plan(self, facts: ProblemFacts, options: SpecInferOptions) -> Plan:
        """Draft side by side, merge, verify, accept."""
        drafters = options.drafters
        body = f"""{joined_chains(drafters, options.length, drawn=not facts.greedy)}
{judge("%c", options.nodes, rule=None if facts.greedy else "recursive")}
{commits(drafters)}"""
        return single_round_plan(facts, self.name, models_of(drafters), body)


METHOD = SpecInfer()
