"""The lower layers guess the next token, and begin with it while the upper layers still run.

Predictive pipelined decoding (Yang et al. 2023, arXiv 2307.05908): the state after some layers
names the likeliest next tokens; the lower layers run for each of them in a lane beside the upper
layers' pass for the current token. Where the target's own choice is among the guesses, the next
round begins above the lower layers. It emits one token per round, exactly the target's; it gains
where lanes overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.exits import exit_depths
from specplan.planner.templates.plan_text import single_round_plan, uniforms
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

GUESSES = (1, 3)


@dataclass(frozen=True)
class PredictivePipelineOptions(Options):
    """Where the target is cut, and how many guesses go ahead."""

    reads = "{guesses} guesses after layer {layer}"

    layer: Annotated[int, Option("layers of the lower part")]
    guesses: Annotated[int, Option("next tokens that the lower part begins with")]


class PredictivePipeline(ProfiledByRunning[PredictivePipelineOptions]):
    """Shorter latency for more compute: every guess runs the lower layers."""

    summary = "the lower layers go ahead with guesses while the upper ones run"
    paper = "Yang et al. 2023, arXiv 2307.05908"
    differs = (
        "Guesses share one pass in a lane of its own instead of a worker each, and the next round "
        "only goes on from them (the paper's workers may run further ahead)."
    )
    memory = "the hidden states of one layer"
    family = "pipelines"

    def run_settings(self, facts: ProblemFacts) -> Iterator[PredictivePipelineOptions]:
        """Every cut with every number of guesses."""
        pairs = product(exit_depths(facts.target.num_layers), GUESSES)
        return (PredictivePipelineOptions(*pair) for pair in pairs)

    def plan(self, facts: ProblemFacts, options: PredictivePipelineOptions) -> Plan:
        """The lower part where it was not guessed, guesses, both parts side by side."""
        layer, count, last = options.layer, options.guesses, facts.target.num_layers
        use = "rule=deterministic"
        draw, by = uniforms(facts, count + 1, "%v", stream="accept", use=use)
        body = f"""%t0 = root
%lag = measure @kv lag(layers=0:{layer})
%miss = compute "lag > 0" lag=%lag
when %miss {{
  forward target %t0 cache=@kv pending=1 layers=[0:{layer}] keep=@x gives=[]
}}
%s = forward target %t0 layers=[{layer}:{layer}] features=@x
%t1 = grow %t0 at=%t0 logits=%s children={count}
%l = segment lane=a {{
  %o = forward target %t0 cache=@kv pending=1 layers=[{layer}:{last}] features=@x
  yield %o
}}
segment lane=b {{
  %f = pick %t1 of=newest
  forward target %f cache=@kv layers=[0:{layer}] keep=@x gives=[]
}}
{draw}
%a = accept %t1 target=%l {by}
%e = emit %a
commit @kv %e
commit @x %e"""
        states = (f"@x = track target layer={layer}",)
        return single_round_plan(facts, self, (), body, states=states)


METHOD = PredictivePipeline()
