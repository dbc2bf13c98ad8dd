"""A token leaves the target after two exits that agree on it, or are sure of it together.

Patience (PABEE, Zhou et al. 2020, arXiv 2006.04152) counts exits that agree in a row: the second
exit's first choice is the first one's. The halting sum (adaptive computation time, Graves 2016,
arXiv 1603.08983) adds up how sure the exits are. The deep layers catch up later, as in
`confident_exit`. Lossy; calibrated to a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.exits import SURE, Exits, exit_depths, exit_plan, put_off

PATIENCE, HALTING = "patience", "halting sum"
_MEASURES = {
    PATIENCE: """%f = grow %t at=%t logits=%s1
%p = accept %f target=%s rule=top_beta(beta=1)
%c = measure %p accepted""",
    HALTING: """%c1 = measure %s1 top1
%c2 = measure %s top1
%c = compute "x + y" x=%c1 y=%c2""",
}
BARS = {PATIENCE: (2.0, 1.0), HALTING: tuple(2.0 * bar for bar in SURE)}


@dataclass(frozen=True)
class AgreeingExitOptions(Options):
    """Which exits are asked, and what they must agree to."""

    reads = "exits after layers {first} and {second} by {measure} {bar}"

    first: Annotated[int, Option("layers of the first exit")]
    second: Annotated[int, Option("layers that every token runs")]
    measure: Annotated[str, Option("patience, or halting sum")]
    bar: Annotated[float, Option("agreeing exits, or sum of probabilities, calibrated")]


class AgreeingExit(Exits[AgreeingExitOptions]):
    """Two exits err together less often than one is sure and wrong."""

    summary = "tokens leave the target where two of its exits agree"
    paper = (
        "Patience: Zhou et al. 2020, arXiv 2006.04152; adaptive computation time: Graves 2016, "
        "arXiv 1603.08983"
    )
    differs = "Both papers train their exits for it, here they are those of LayerSkip's loss."
    exits = 2
    memory = "the hidden states of two layers"
    family = "agreeing exits"

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, AgreeingExitOptions]]:
        """Per pair of neighbouring exits and measure, thresholds from safe to risky."""
        for first, second in pairwise(exit_depths(facts.target.num_layers)):
            for measure, bars in BARS.items():
                for bar in bars:
                    name = f"after layers {first} and {second} by {measure}"
                    yield name, AgreeingExitOptions(first, second, measure, bar)

    def plan(self, facts: ProblemFacts, options: AgreeingExitOptions) -> Plan:
        """Two exits in a row, what they agree on, and the others for what they do not."""
        first, second, last = options.first, options.second, facts.target.num_layers
        body = f"""%s1 = forward target %t cache=@kv pending=1 layers=[0:{first}] keep=@x{first}
%s = forward target %t cache=@kv pending=1 layers=[{first}:{second}] features=@x{first} keep=@x{second}
{_MEASURES[options.measure]}
{put_off(second, last, "c < b", "c=%c b=%b")}"""  # noqa: E501
        return exit_plan(facts, self, body, options.bar, (first, second))


METHOD = AgreeingExit()
