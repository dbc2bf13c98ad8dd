"""Chains of a draft model that are judged by a mixture of the target's logits and others'.

The output follows the mixture at every temperature, the bonus token and greedy decoding too: the
draft model also runs the last drafted token, so that every place has the logits of all models.
Sampling settings apply to the mixture, so that laws compare probabilities as they are at
temperature 1, also where decoding is greedy.

Spans of a corpus as drafts (NEST, Li et al. 2024, arXiv 2405.19325): a store holds the target's
hidden states over it. The tokens behind the states nearest to a node's are mixed with the target's
probabilities, by how much nearer the nearest is than the farthest (law `retrieval`). Where the
store counts for more than half, the text that followed the nearest state with the same next token
is drafted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import stores_of
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Method, Option, Options
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import (
    FEATURES,
    cache_of,
    draft_and_verify,
    draft_passes,
    features_of,
    states_of,
)
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.static_trees import grown_text
from specplan.planner.trees import chain

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


SPANS = (4, 8, 16)
LEAST = 0.5
"""Share of the store above which a span is drafted: one minus beta of NEST's code."""


@dataclass(frozen=True)
class NeighbourOptions(Options):
    """Which store, and how long its spans are."""

    reads = "spans of up to {length} from {store}"

    store: DraftName
    length: Annotated[int, Option("tokens of a span at most", SPANS)]


NeighbourT = TypeVar("NeighbourT", bound=NeighbourOptions)


class NeighbourSpans(ProfiledByRunning[NeighbourT]):
    """A method that drafts from stores of states; each setting is measured by running it."""

    memory = "the store in float32, and the states of one layer"
    family = "spans of neighbours"

    def run_settings(self, facts: ProblemFacts) -> Iterator[NeighbourT]:
        """All settings of the problem's stores."""
        yield from self.settings(stores_of(facts.drafters))

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """Where no store is given."""
        if stores_of(facts.drafters):
            return None
        return (
            "models.drafts names no store of the target's states: build one with `specplan "
            "datastore states`"
        )


def neighbour_plan(
    facts: ProblemFacts, method: Method[NeighbourT], options: NeighbourT, rule: str
) -> Plan:
    """A plan of one round: a span behind the root, judged by the mixture.

    The state above the root, which the store kept in the round before, and the root's own token say
    where the span starts.

    Args:
        facts: the problem.
        method: whose plan it is.
        options: the store and the length of its spans.
        rule: acceptance rule.
    """
    store, length = options.store, options.length
    own = states_of(store)
    ahead = f"%s = forward {store} %t0 features={own} shift=1 levels={length}"
    span = grown_text(
        chain(length),
        lambda level, _: ("" if level else ahead, "%s"),
        drawn=False,
        distinct=False,
        result="%d",
    )
    drafted = f"{span}\n%sure = pick %d of=all above={LEAST}\n%c = prune %d to=%sure"
    mix = f"""%n = forward {store} %c features={FEATURES} layers=[0:0] keep={own}
%x = mix %l %n law=retrieval"""
    return draft_and_verify(
        facts, method, drafted, length, models=(store,), rule=rule, mix=mix,
        features=features_of(facts.drafters[store]), recurrent=True, uncached=(store,),
    )  # fmt: skip
