"""A token leaves the target after one of several layers, and its state is copied to those above.

CALM (Schuster et al. 2022, arXiv 2207.07061): after each exit the margin of the two likeliest
tokens is compared with a threshold that falls as the output grows, min(1, b + 0.1 exp(-0.005 t)).
The state at the exit enters every layer above it, which only computes keys and values of it
(depth-adaptive transformer, Elbayad et al. 2019, arXiv 1910.10073). No layer ever lags, at the
price of approximate keys, so that what is lost must be measured by running. Lossy; calibrated to a
limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.exits import SURE, Exits, exit_depths, exit_plan

FALLING = "min(1.0, b + 0.1*exp(-0.005*emitted))"


@dataclass(frozen=True)
class CopiedExitOptions(Options):
    """Where a token may leave, and how sure it must be."""

    reads = "exits after layers {first} and {second}, states copied, margin {bar}"

    first: Annotated[int, Option("layers that every token runs")]
    second: Annotated[int, Option("layers of the second exit")]
    bar: Annotated[float, Option("threshold of the margin of late tokens, calibrated")]


class CopiedExit(Exits[CopiedExitOptions]):
    """No pass is put off, and the layers above an exit compute keys and values alone."""

    summary = "tokens leave early at one of two layers, their states are copied upward"
    paper = (
        "CALM: Schuster et al. 2022, arXiv 2207.07061; depth-adaptive transformer: Elbayad et al. "
        "2019, arXiv 1910.10073"
    )
    differs = (
        "Exits are two, and of CALM's measures it has the margin; saturation of states compares "
        "those of two layers, which no measure reads, and the classifier must be trained."
    )
    exits = 2
    memory = "the hidden states of two layers"
    family = "copied states"

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, CopiedExitOptions]]:
        """Per pair of neighbouring exits, thresholds from safe to risky."""
        for first, second in pairwise(exit_depths(facts.target)):
            for bar in SURE:
                name = f"after layers {first} and {second}"
                yield name, CopiedExitOptions(first, second, bar)

    def plan(self, facts: ProblemFacts, options: CopiedExitOptions) -> Plan:
        """The first layers; where they are not sure the next; where these are not, all."""
        first, second, last = options.first, options.second, facts.target.num_layers
        body = f"""%s = forward target %t cache=@kv pending=1 layers=[0:{first}] keep=@x{first}
%c = measure %s margin
%go = compute "c < {FALLING}" c=%c b=%b
%sure = compute "c >= {FALLING}" c=%c b=%b
when %sure {{
  {_copy(first, last)}
}}
%l = when %go otherwise=[%s] {{
  %s2 = forward target %t cache=@kv pending=1 layers=[{first}:{second}] features=@x{first} keep=@x{second}
  %c2 = measure %s2 margin
  %go2 = compute "c < {FALLING}" c=%c2 b=%b
  %sure2 = compute "c >= {FALLING}" c=%c2 b=%b
  when %sure2 {{
    {_copy(second, last)}
  }}
  %d = when %go2 otherwise=[%s2] {{
    %s3 = forward target %t cache=@kv pending=1 layers=[{second}:{last}] features=@x{second}
    yield %s3
  }}
  yield %d
}}"""  # noqa: E501
        return exit_plan(facts, self, body, options.bar, (first, second))


def _copy(layer: int, last: int) -> str:
    """Keys and values of the layers above an exit, of its state."""
    span = f"layers=[{layer}:{last}] features=@x{layer}"
    return f"forward target %t cache=@kv pending=1 {span} gives=[] only=keys_values"


METHOD = CopiedExit()
