"""A draft model and the target draw with the same randomness: the text depends on the seed alone.

Drafter-invariant speculative decoding (Daliri et al. 2024, arXiv 2408.07978): every position of
the text has its own noise, the draft model and the target both take the token that is first under
it, and a draft is accepted where they agree. Another draft model, or none, gives the same text. The
paper's two couplings, Gumbel noise and weighted MinHash, both accept a draft token with the
probability (1 - TV) / (1 + TV) at least. At temperature 0 draft and target take their best token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

STREAM = "coupled"


@dataclass(frozen=True)
class SharedDrawsOptions(Options):
    """Which model drafts, and how far."""

    reads = "chain of {length} by {draft}, {coupling}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens")]
    coupling: Annotated[Literal["gumbel", "minhash"], Option("how draft and target draw alike")] = (
        "gumbel"
    )


class SharedDraws(ProfiledByRunning[SharedDrawsOptions]):
    """Accepts a little less than the token rule; sampled text stays the same under any draft."""

    summary = "draft model and target draw alike, so that text depends on the seed alone"
    paper = "Daliri et al. 2024, arXiv 2408.07978"
    differs = "Weighted MinHash is Ioffe's consistent sampling, where the paper throws darts."
    family = "chains"
    shapes = (
        *((length, "gumbel") for length in (2, 4, 6, 8)),
        *((length, "minhash") for length in (2, 4)),
    )

    def run_settings(self, facts: ProblemFacts) -> Iterator[SharedDrawsOptions]:
        """At temperature 0, where nothing is drawn, the two couplings are one."""
        every = super().run_settings(facts)
        return (one for one in every if not facts.greedy or one.coupling == "gumbel")

    def plan(self, facts: ProblemFacts, options: SharedDrawsOptions) -> Plan:
        """Race over the same numbers as the target will, verify, accept what agrees."""
        draft, length = options.draft, options.length
        forward, _ = draft_passes(draft)
        drafted, rule = drafted_chain(length, forward, drawn=False), f"{options.coupling} by=%s"
        how = {"gumbel": "shared", "minhash": "minhash"}[options.coupling]
        if not facts.greedy:
            drafted = f"%s = uniform {length + 1} stream={STREAM} key=position\n" + drafted.replace(
                "logits=%q", f"logits=%q how={how} by=%s"
            )
        return draft_and_verify(facts, self, drafted, length, models=(draft,), rule=rule)


METHOD = SharedDraws()
