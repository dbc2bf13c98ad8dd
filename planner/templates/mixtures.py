"""Chains of a draft model that are judged by a mixture of the target's logits and others'.

The output follows the mixture at every temperature, the bonus token and greedy decoding too: the
draft model also runs the last drafted token, so that every place has the logits of all models.
Sampling settings apply to the mixture, so that laws compare probabilities as they are at
temperature 1, also where decoding is greedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Method, Option, Options
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import cache_of, draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LENGTHS = (2, 4, 6)


@dataclass(frozen=True)
class MixedOptions(Options):
    """Which model drafts, and how far."""

    reads = "chain of {length} by {draft}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens", LENGTHS)]


class MixedChains(ProfiledByRunning[MixedOptions]):
    """A draft model takes part in the law that it drafts for.

    Attributes:
        mixture: the law of `mix`, with its parameters.
    """

    law = "stated"
    family = "chains"
    mixture: str

    def plan(self, facts: ProblemFacts, options: MixedOptions) -> Plan:
        """Draft, verify, mix, accept."""
        return mixed_plan(facts, self, options.draft, options.length, self.mixture)


def mixed_plan(
    facts: ProblemFacts,
    method: Method[Any],
    draft: str,
    length: int,
    mixture: str,
    others: Sequence[str] = (),
) -> Plan:
    """A plan of one round: a chain by a draft model, judged by a mixture.

    Args:
        facts: the problem.
        method: whose plan it is.
        draft: role of the draft model.
        length: drafted tokens.
        mixture: the law of `mix`.
        others: models that take part besides the target, each with a pass of its own over the
            chain; the draft model where there are none.
    """
    first, later = draft_passes(draft)
    drawn = not facts.greedy
    if others:
        drafted = drafted_chain(length, first, drawn=drawn)
        passes = [
            f"%m{place} = forward {other} %c cache={cache_of(other)} pending=1"
            for place, other in enumerate(others)
        ]
        operands = " ".join(f"%m{place}" for place in range(len(others)))
    else:
        chain = drafted_chain(length, first, drawn=drawn, result="%d")
        last = f"%z = pick %d of=newest\n%r = {later.over('%z')}"
        drafted = f"{chain}\n{last}\n%c = grow %d at=%z logits=%r children=0"
        passes, operands = [], "%c"
    mix = "\n".join([*passes, f"%x = mix %l {operands} law={mixture}"])
    return draft_and_verify(
        facts, method, drafted, length, models=(draft, *others), rule="token", mix=mix
    )
