"""The target's own first layers draft, and its other layers go on from what they computed.

Self-speculative decoding by early exit (LayerSkip, arXiv 2404.16710): a token is drafted from the
hidden state after some layers by the final norm and head, and its keys and values in those layers
stay; verification enters the next layer with the hidden states that drafting recorded, so that no
layer runs a token twice (`specplan.passes.share_prefix`). It needs no draft model and no memory for
one, and pays where a model's lower layers have learnt to speak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, FirstLayers
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import exit_layers
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import drafted_chain, judge, single_round_plan

LENGTHS = tuple(range(1, 9))


@dataclass(frozen=True)
class EarlyExitOptions(Options):
    """Where the target is left, and how far is drafted.

    Attributes:
        exit_layer: layers that run before a token is drafted.
        length: drafted tokens.
    """

    exit_layer: int
    length: int

    @property
    def words(self) -> str:
        """`chain of 4 after layer 2`."""
        return f"chain of {self.length} after layer {self.exit_layer}"


class EarlyExit(Method[EarlyExitOptions]):
    """The target drafts for itself."""

    name: ClassVar[str] = "early_exit"
    engine_drafter: ClassVar[str] = "first_layers"
    summary: ClassVar[str] = "the target's first layers draft a chain, the others verify it"
    paper: ClassVar[str] = "Elhoushi et al. 2024, arXiv 2404.16710"
    acceptance: ClassVar[str] = "rank of the accepted child among its choices"
    memory: ClassVar[str] = "the hidden states of one layer"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[EarlyExitOptions] | Refusal]:
        """Per exit layer, chains of 1 to 8 tokens."""
        exits = exit_layers(facts.target)
        if not exits:
            return [Refusal("any", "the target has one layer, and nothing to leave out")]
        return [_family(facts, layer) for layer in exits]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """The target up to each exit layer."""
        return tuple(FirstLayers("target", layer) for layer in exit_layers(facts.target))

    def plan(self, facts: ProblemFacts, options: EarlyExitOptions) -> Plan:
        """Lower layers one token at a time, then all of them; what both run is shared."""
        lower = f"target %f cache=@kv pending=1 layers=[0:{options.exit_layer}]"
        drafted = drafted_chain(options.length, lower, drawn=not facts.greedy)
        rule, stack = None if facts.greedy else "token", f"layers=[0:{facts.target.num_layers}]"
        body = f"{drafted}\n{judge('%c', options.length, rule=rule, forward=stack)}"
        return single_round_plan(facts, self.name, (), body)

    def drafter(self, facts: ProblemFacts, options: EarlyExitOptions) -> Drafter | None:
        """The layers below the exit."""
        return FirstLayers("target", options.exit_layer)


def _family(facts: ProblemFacts, layer: int) -> Family[EarlyExitOptions] | Refusal:
    name, drafter = f"chain after layer {layer}", FirstLayers("target", layer)
    if drafter not in facts.profiles:
        return Refusal(name, facts.missing_profile(drafter))
    domains = {
        "exit_layer": Domain((layer,), "layers that run before a token is drafted"),
        "length": Domain(LENGTHS, "drafted tokens"),
    }
    return Family(name, domains, tuple(EarlyExitOptions(layer, length) for length in LENGTHS))


METHOD = EarlyExit()
