"""A draft model writes a chain; what is nearly as probable as the target's first choice stands.

Relaxed acceptance, which TensorRT-LLM offers for the thinking phase of reasoning models (technical
blog 2, "DeepSeek R1 MTP Implementation and Optimization", 2025): rule `relaxed`, with the values
recommended there. Lossy at every temperature: more of the output is the draft's own than of
lossless drafts by the same model, and where a token is rejected the target's best follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.chains import ChainDrafter
from specplan.planner.templates.plan_text import drafted_chain, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LENGTHS = (2, 4, 6, 8)
TOP, DELTA = 10, 0.6
"""Recommended by the source."""


@dataclass(frozen=True)
class RelaxedOptions(Options):
    """Which model drafts, and how far.

    Attributes:
        draft: name of the draft model.
        length: drafted tokens.
    """

    draft: str
    length: int

    @property
    def words(self) -> str:
        """`4 by draft`."""
        return f"{self.length} by {self.draft}"


class RelaxedAcceptance(ProfiledByRunning[RelaxedOptions]):
    """Longer accepted runs than of any lossless rule, at the price of the target's law."""

    name: ClassVar[str] = "relaxed_acceptance"
    summary: ClassVar[str] = "a draft model, judged by what is nearly the target's first choice"
    paper: ClassVar[str] = "NVIDIA 2025, TensorRT-LLM technical blog 2, DeepSeek R1 MTP"
    lossless: ClassVar[bool] = False
    by_name: ClassVar[bool] = True
    needs_draft_model: ClassVar[bool] = True
    family: ClassVar[str] = "chains"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "length": "drafted tokens",
    }

    def settings(self, models: Sequence[str]) -> Iterator[RelaxedOptions]:
        """Every length with every draft model."""
        return (RelaxedOptions(draft, length) for draft in models for length in LENGTHS)

    def plan(self, facts: ProblemFacts, options: RelaxedOptions) -> Plan:
        """Draft the best tokens, verify, keep what is probable enough."""
        said = ChainDrafter.of(Model(options.draft))
        drafted = drafted_chain(options.length, said.forward, drawn=False)
        judged = judge("%c", options.length, rule=f"relaxed(top={TOP}, delta={DELTA})")
        body = f"{drafted}\n{judged}\n{said.end}"
        return single_round_plan(facts, self.name, said.models, body, lossless=False)


METHOD = RelaxedAcceptance()
