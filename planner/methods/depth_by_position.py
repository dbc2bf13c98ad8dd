"""Late tokens run fewer layers: how many depends on their position in the output alone.

SkipDecode (Del Corro et al. 2023, arXiv 2307.02628): the depth never rises with the position and is
the same for all requests, so that batches stay whole; the layers that are left out lie above the
first ones, and what a later token runs every earlier one has run, so that no key or value is
missing. Lossy: no measure says whether a token can spare the layers. What is lost is measured by
running it (`limits.quality`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from specplan.ir.plan import Guard, Plan, Schedule
from specplan.ir.values import Text
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.merged_rounds import merge_plans
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

PARTS = (7 / 8, 3 / 4, 1 / 2)
"""Parts of the stack that the last tokens run."""


@dataclass(frozen=True)
class DepthByPositionOptions(Options):
    """How many layers late tokens run."""

    reads = "down to {least} layers"

    least: Annotated[int, Option("layers that the last half of an output runs")]


class DepthByPosition(ProfiledByRunning[DepthByPositionOptions]):
    """The same depth for all requests of a batch, and no key or value is ever missing."""

    summary = "late tokens leave out layers above the first ones"
    paper = "Del Corro et al. 2023, arXiv 2307.02628"
    differs = (
        "Three depths instead of one for every position, and no fine-tuning: a target that was not "
        "trained for it loses more."
    )
    law = "free"
    family = "depths by position"

    def run_settings(self, facts: ProblemFacts) -> Iterator[DepthByPositionOptions]:
        """The deepest first."""
        if self.unavailable(facts) is None:
            layers = facts.target.num_layers
            least = (max(2, round(part * layers)) for part in PARTS)
            yield from map(DepthByPositionOptions, dict.fromkeys(n for n in least if n < layers))

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """One layer at each end runs always."""
        few = facts.target.num_layers < 3
        return "the target has no layer between its first and its last" if few else None

    def plan(self, facts: ProblemFacts, options: DepthByPositionOptions) -> Plan:
        """The first quarter of an output whole, the second half by the fewest layers."""
        layers, outputs = facts.target.num_layers, facts.requests[0].output_tokens
        middle = (layers + options.least) // 2
        depths = {"all": layers, "most": middle, "few": options.least}
        rule = "greedy" if facts.greedy else "token"
        plans = {
            name: draft_and_verify(
                facts, self, "%t = root", 0, tree="%t", rule=rule, verify=_spans(layers, count)
            )
            for name, count in depths.items()
        }
        bounds = {"all": max(1, outputs // 4), "most": max(2, outputs // 2)}
        guards = tuple(
            Guard(formula=Text(f"emitted < {bound}"), round=name) for name, bound in bounds.items()
        )
        return replace(merge_plans(plans), schedule=Schedule(guards=guards, otherwise="few"))


def _spans(layers: int, count: int) -> str:
    """The first tenth of the layers, and the last ones up to so many in all."""
    first = max(1, layers // 10)
    above = layers - (count - first)
    return f"layers=[0:{layers}]" if above <= first else f"layers=[0:{first}, {above}:{layers}]"


METHOD = DepthByPosition()
