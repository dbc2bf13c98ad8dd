"""A draft model drafts a token by its lower layers where they are sure of it, else by all.

Sorted speculative decoding (S2D, Kavehzadeh et al. 2024, arXiv 2407.01955): one draft model with
exits serves targets of different sizes, as each token is drafted by the smallest of its nested
models whose probability for it reaches a bar. Layers above the exit catch up on the tokens that
left there when the next one needs them. The bar reads the logits that a token would be drafted
from, before it is drawn, so that the token rule keeps the target's distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import cache_of, draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BARS, LENGTHS = (0.5, 0.7, 0.9), (2, 4, 6)
STATES = "@inner"


@dataclass(frozen=True)
class NestedExitsOptions(Options):
    """Which model drafts, where it may be left, and how far is drafted."""

    reads = "{length} by {draft}, after layer {exit_layer} from {bar}"

    draft: DraftName
    exit_layer: Annotated[int, Option("layers of the draft model that every drafted token runs")]
    bar: Annotated[float, Option("probability from which these draft the token")]
    length: Annotated[int, Option("drafted tokens")]


class NestedExits(ProfiledByRunning[NestedExitsOptions]):
    """One draft model for targets of many sizes, deep only where a token is hard."""

    summary = "a draft model whose lower layers draft what they are sure of"
    paper = "S2D: Kavehzadeh et al. 2024, arXiv 2407.01955"
    differs = (
        "One exit, after half of the draft model's layers, which were not fine-tuned together with "
        "it (S2D sorts several); prices take all layers to run for every token."
    )
    memory = "the hidden states of one layer of the draft model"
    family = "chains by nested exits"

    def run_settings(self, facts: ProblemFacts) -> Iterator[NestedExitsOptions]:
        """Of every draft model with two layers or more."""
        for name in models_alone(facts.shapes):
            half = facts.shapes[name].num_layers // 2
            if half:
                for bar, length in product(BARS, LENGTHS):
                    yield NestedExitsOptions(name, half, bar, length)

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """A draft model of one layer has no exit."""
        if next(self.run_settings(facts), None) is None and models_alone(facts.shapes):
            return "models.drafts has no model of two layers or more"
        return None

    def plan(self, facts: ProblemFacts, options: NestedExitsOptions) -> Plan:
        """Lower layers, how sure they are, the others where they are not; then verify."""
        draft, layer = options.draft, options.exit_layer
        cache, last = f"cache={cache_of(draft)}", facts.shapes[draft].num_layers
        waiting = 2 + options.length
        logits = f"""%s = forward {draft} %f {cache} pending=2 layers=[0:{layer}] keep={STATES}
%m = measure %s top1
%go = compute "m < {options.bar}" m=%m
%q = when %go otherwise=[%s] {{
  %d = forward {draft} %f {cache} pending={waiting} layers=[{layer}:{last}] features={STATES}
  yield %d
}}"""
        return draft_and_verify(
            facts,
            self,
            drafted_chain(options.length, logits, drawn=not facts.greedy),
            options.length,
            models=(draft,),
            rule="token",
            states=(f"{STATES} = track {draft} layer={layer}",),
            after=f"commit {STATES} %e",
        )


METHOD = NestedExits()
