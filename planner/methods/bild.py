"""A small model writes while it is sure; the target takes back tokens that it finds too unlikely.

Big little decoder (Kim et al. 2023, arXiv 2302.07863). Fallback: where the small model's highest
probability falls below a bar, its token is not drafted, and the target continues the text; a round
may draft nothing. Rollback: drafted tokens stand until -ln p of a token, by the target, is above a
threshold (rule `rollback`). Lossy: the small model's tokens are emitted where the target finds them
likely enough, and the token after them is the target's best. The paper's thresholds of rollback are
2 to 5; the more they allow, the more of the output is the small model's own.
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

FALLBACKS = (0.4, 0.6, 0.8)
ROLLBACKS = (2.0, 5.0)
"""The released code's own are 0.6 and 5."""
MOST = 10


@dataclass(frozen=True)
class BildOptions(Options):
    """Which model writes, and what stands."""

    reads = "{draft} down to {fallback}, rolled back above {rollback}"

    draft: Annotated[str, Option("who writes", drafts=True)]
    fallback: Annotated[float, Option("probability below which the target goes on")]
    rollback: Annotated[float, Option("largest -ln p by the target that stands, nats")]
    most: Annotated[int, Option("drafted tokens at most")] = MOST


class Bild(ProfiledByRunning[BildOptions]):
    """Faster than any lossless draft by the same model; changes the output distribution."""

    summary = "a small model writes while it is sure, the target rolls back"
    paper = "Kim et al. 2023, arXiv 2302.07863"
    law = "free"
    family = "fallback and rollback"

    def settings(self, models: Sequence[str]) -> Iterator[BildOptions]:
        """Every pair of thresholds with every draft model."""
        return (BildOptions(*one) for one in product(models, FALLBACKS, ROLLBACKS))

    def plan(self, facts: ProblemFacts, options: BildOptions) -> Plan:
        """Draft while the next token is sure enough, verify, take back what is too unlikely."""
        draft, most = options.draft, options.most
        drafted = written_while_sure(facts, draft, options.fallback, most)
        rule = f"rollback(threshold={options.rollback})"
        return draft_and_verify(facts, self, drafted, most, models=(draft,), rule=rule)


METHOD = Bild()
