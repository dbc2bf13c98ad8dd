"""A small model writes; the target writes the tokens of which the small model is not sure.

FS-GEN (Zhang et al. 2024, arXiv 2406.12295) studies when a large model must step in where a small
one generates, and steers by the small model's uncertainty: its token stands where its highest
probability is above a bar, else the large model's does; with the right bar the large one writes
less than a fifth of the tokens. Nothing is taken back, unlike `bild`. The target runs what was
written since it last did, and writes one token. Lossy: most of the text is the small model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.chains import written_while_sure
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BARS = (0.3, 0.5, 0.7, 0.9)
MOST = 16
EVERYTHING = 1e6
"""Largest -ln p that stands, nats: no token is less likely."""


@dataclass(frozen=True)
class SteeredOptions(Options):
    """Which model writes, and when the target does."""

    reads = "{draft} down to {bar}"

    draft: Annotated[str, Option("who writes", drafts=True)]
    bar: Annotated[float, Option("probability below which the target writes the next token")]
    most: Annotated[int, Option("tokens before the target runs, at most")] = MOST


class Steered(ProfiledByRunning[SteeredOptions]):
    """As few passes of the target as the small model has doubts; changes the distribution."""

    summary = "a small model writes, the target where that is not sure"
    paper = "Zhang et al. 2024, arXiv 2406.12295"
    differs = (
        "Of the paper's ways to work together it has the one by uncertainty; the target writes its "
        "best token, and also one after a number of sure ones."
    )
    law = "free"
    family = "steered by uncertainty"

    def settings(self, models: Sequence[str]) -> Iterator[SteeredOptions]:
        """Every bar with every draft model."""
        return (SteeredOptions(*one) for one in product(models, BARS))

    def plan(self, facts: ProblemFacts, options: SteeredOptions) -> Plan:
        """Write while sure, let the target read it and write the token after it."""
        draft, most = options.draft, options.most
        drafted, rule = (
            written_while_sure(facts, draft, options.bar, most),
            f"rollback(threshold={EVERYTHING})",
        )
        return draft_and_verify(facts, self, drafted, most, models=(draft,), rule=rule)


METHOD = Steered()
