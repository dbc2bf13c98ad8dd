"""The target's own first layers draft, and its other layers continue from their hidden states.

Self-speculative decoding by early exit (LayerSkip, arXiv 2404.16710): a token is drafted from the
hidden state after some layers by the final norm and head, and its keys and values in those layers
stay; verification enters the next layer with the hidden states that drafting recorded, so that no
layer runs a token twice (`specplan.passes.share_prefix`). It needs no draft model and no memory for
one, and pays where a model's lower layers were trained to predict tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter, FirstLayers
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import exit_layers
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import Pass, draft_and_verify

LENGTHS = tuple(range(1, 9))


@dataclass(frozen=True)
class EarlyExitOptions(Options):
    """Where the target is left, and how far is drafted."""

    reads = "chain of {length} after layer {exit_layer}"

    exit_layer: Annotated[int, Option("layers that run before a token is drafted")]
    length: Annotated[int, Option("drafted tokens")]


class EarlyExit(Method[EarlyExitOptions]):
    """The target drafts for itself."""

    summary = "the target's first layers draft a chain, the others verify it"
    paper = "Elhoushi et al. 2024, arXiv 2404.16710"
    acceptance = "rank of the accepted child among its choices"
    memory = "the hidden states of one layer"
    engine_drafter = "first_layers"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[EarlyExitOptions] | Refusal]:
        """Per exit layer, chains of 1 to 8 tokens."""
        reason = "the target has one layer, and nothing to leave out"
        return [_family(facts, layer) for layer in exit_layers(facts.target)] or [
            Refusal("any", reason)
        ]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """The target up to each exit layer."""
        return tuple(FirstLayers("target", layer) for layer in exit_layers(facts.target))

    def plan(self, facts: ProblemFacts, options: EarlyExitOptions) -> Plan:
        """Lower layers one token at a time, then all of them; what both run is shared."""
        lower = Pass("target", f"cache=@kv pending=1 layers=[0:{options.exit_layer}]")
        drafted = drafted_chain(options.length, lower, drawn=not facts.greedy)
        stack = f"layers=[0:{facts.target.num_layers}]"
        return draft_and_verify(facts, self, drafted, options.length, rule="token", verify=stack)

    def drafter(self, facts: ProblemFacts, options: EarlyExitOptions) -> Drafter | None:
        """The layers below the exit."""
        return FirstLayers("target", options.exit_layer)


def _family(facts: ProblemFacts, layer: int) -> Family[EarlyExitOptions] | Refusal:
    settings = (EarlyExitOptions(layer, length) for length in LENGTHS)
    name = f"chain after layer {layer}"
    return family_by(facts, name, FirstLayers("target", layer), lambda _: settings)


METHOD = EarlyExit()
