"""A small model writes while it is sure; the target takes back what it finds too unlikely.

Big little decoder (Kim et al. 2023, arXiv 2302.07863). Fallback: where the small model's highest
probability falls below a bar, its token is not drafted, and the target says how the text goes on; a
round may draft nothing. Rollback: what was drafted stands until -ln p of a token, by the target, is
above a threshold (rule `rollback`). Lossy: what the small model writes is emitted where the target
finds it likely enough, and the token after it is the target's best. The paper's thresholds of
rollback are 2 to 5; the more they allow, the more of the output is the small model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

FALLBACKS = (0.4, 0.6, 0.8)
ROLLBACKS = (2.0, 5.0)
"""The released code's own are 0.6 and 5."""
MOST = 10


@dataclass(frozen=True)
class BildOptions(Options):
    """Which model writes, and what stands.

    Attributes:
        draft: name of the small model.
        fallback: probability below which the target goes on.
        rollback: largest -ln p by the target that stands, nats.
        most: drafted tokens at most.
    """

    draft: str
    fallback: float
    rollback: float
    most: int = MOST

    @property
    def words(self) -> str:
        """`draft down to 0.6, rolled back above 5.0`."""
        return f"{self.draft} down to {self.fallback}, rolled back above {self.rollback}"


class Bild(ProfiledByRunning[BildOptions]):
    """Faster than any lossless draft by the same model, at the price of the target's law."""

    name: ClassVar[str] = "bild"
    summary: ClassVar[str] = "a small model writes while it is sure, the target rolls back"
    paper: ClassVar[str] = "Kim et al. 2023, arXiv 2302.07863"
    lossless: ClassVar[bool] = False
    by_name: ClassVar[bool] = True
    needs_draft_model: ClassVar[bool] = True
    family: ClassVar[str] = "fallback and rollback"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who writes",
        "fallback": "probability below which the target goes on",
        "rollback": "largest -ln p by the target that stands, nats",
        "most": "drafted tokens at most",
    }

    def settings(self, models: Sequence[str]) -> Iterator[BildOptions]:
        """Every pair of thresholds with every draft model."""
        return (
            BildOptions(draft, fallback, rollback)
            for draft, fallback, rollback in product(models, FALLBACKS, ROLLBACKS)
        )

    def plan(self, facts: ProblemFacts, options: BildOptions) -> Plan:
        """Draft while the next token is sure enough, verify, take back what is too unlikely."""
        draft, cache, bar = options.draft, cache_of(options.draft), options.fallback
        draw = "" if facts.greedy else "\n    %u = uniform 1 stream=draft"
        how = "" if facts.greedy else " how=draw by=%u"
        verified = judge("%c", options.most, rule=f"rollback(threshold={options.rollback})")
        body = f"""%t0 = root
%q0 = forward {draft} %t0 cache={cache} pending=2
%m0 = measure %q0 top1
%sure = compute "m >= {bar}" m=%m0
%c, %x = repeat {options.most} (%t = %t0, %q = %q0) only=%sure {{
    %f = pick %t of=newest{draw}
    %n = grow %t at=%f logits=%q{how}
    %g = pick %n of=newest
    %s = forward {draft} %g cache={cache}
    %m = measure %s top1
    %stop = compute "m < {bar}" m=%m
    yield %n, %s until=%stop
}}
{verified}
commit {cache} %e"""
        return single_round_plan(facts, self.name, (draft,), body, lossless=False)


METHOD = Bild()
