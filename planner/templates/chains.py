"""Who drafts a chain a token a pass: how the pass, its cache and the round's end are said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from specplan.cost_models.acceptance.drafters import Model, SkipBlocks, SmallCache
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.parts import CHUNK, SINKS
from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.plan_text import cache_of, drafted_chain, judge, single_round_plan

OfChain = Model | SkipBlocks | SmallCache
"""A draft model, the target without some blocks, or either with few cached tokens."""


def cache_policy(drafter: SmallCache) -> str:
    """How the cache of a drafter with few cached tokens is declared."""
    policy = f"retrieved(chunk={CHUNK})" if drafter.retrieved else f"sink_recent(sink={SINKS})"
    return f"policy={policy} budget={drafter.budget}"


@dataclass(frozen=True)
class ChainDrafter:
    """A drafter in plan text.

    Attributes:
        forward: operands and attributes of the pass over the newest node, `%f`.
        end: op at the end of the round; empty for none.
        models: its role, where it is not the target.
        states: declarations beside those of the caches.
        kept: by role, further attributes of the cache of a model beside the target.
    """

    forward: str
    end: str = ""
    models: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, drafter: OfChain) -> ChainDrafter:
        """A draft model, the target without some blocks, or either with few cached tokens."""
        role = drafter.name if isinstance(drafter, Model) else drafter.model
        if isinstance(drafter, SkipBlocks):
            assert role == "target", "other models run whole"
            skip = print_atom(drafter.skips.words)
            return cls(f"{role} %f cache=@kv pending=1 skip={skip} write=scratch")
        kept = cache_policy(drafter) if isinstance(drafter, SmallCache) else ""
        if role == "target":
            view = f"@part = cache target view=@kv {kept}"
            forward = "target %f cache=@part pending=1 write=scratch"
            return cls(forward, "refresh @part", states=(view,))
        cache = cache_of(role)
        forward, end = f"{role} %f cache={cache} pending=2", f"commit {cache} %e"
        return cls(forward, end, models=(role,), kept={role: kept})

    def plan(
        self,
        facts: ProblemFacts,
        name: str,
        drafted: str,
        length: int,
        *,
        rule: str = "token",
        after: str = "",
        states: Iterable[str] = (),
    ) -> Plan:
        """The plan of a round in which it drafts.

        Args:
            facts: the problem.
            name: the plan's name.
            drafted: ops that give the chain `%c`.
            length: drafted tokens at most.
            rule: that judges, above temperature 0.
            after: ops at the very end.
            states: what they and `drafted` need.
        """
        judged = judge("%c", length, rule=None if facts.greedy else rule)
        body = "\n".join(part for part in (drafted, judged, self.end, after) if part)
        declared = (*self.states, *states)
        return single_round_plan(facts, name, self.models, body, states=declared, kept=self.kept)


def chain_plan(
    facts: ProblemFacts, name: str, drafter: OfChain, length: int, *, rule: str = "token"
) -> Plan:
    """A plan in which a chain of one length is drafted, then verified.

    Args:
        facts: the problem.
        name: the plan's name.
        drafter: a draft model, the target without some blocks, or either with few cached tokens.
        length: drafted tokens.
        rule: that judges, above temperature 0.
    """
    said = ChainDrafter.of(drafter)
    drafted = drafted_chain(length, said.forward, drawn=not facts.greedy)
    return said.plan(facts, name, drafted, length, rule=rule)
