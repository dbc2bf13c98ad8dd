"""A token leaves the target after one of several layers, and its state is copied to those above.

CALM (Schuster et al. 2022, arXiv 2207.07061): after each exit a measure of how sure it is, the
margin of the two likeliest tokens, the similarity of the states of neighbouring layers, or a
classifier trained on whether the exit's token is that of all layers, is compared with a threshold
that falls as the output grows, min(1, b + 0.1 exp(-0.005 t)).
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
from specplan.planner.templates.exits import (
    CLASSIFIER,
    SATURATED,
    SATURATION,
    SURE,
    Exits,
    can_measure,
    copied_plan,
    exit_depths,
)

FALLING = "min(1.0, b + 0.1*exp(-0.005*emitted))"
BARS = {"margin": SURE, SATURATION: SATURATED, CLASSIFIER: SURE}


@dataclass(frozen=True)
class CopiedExitOptions(Options):
    """Where a token may leave, and how sure it must be."""

    reads = "exits after layers {first} and {second}, states copied, {measure} {bar}"

    first: Annotated[int, Option("layers that every token runs")]
    second: Annotated[int, Option("layers of the second exit")]
    measure: Annotated[str, Option("how sure they are: margin, saturation, classifier")]
    bar: Annotated[float, Option("threshold of the measure for late tokens, calibrated")]


class CopiedExit(Exits[CopiedExitOptions]):
    """No pass is put off, and the layers above an exit compute keys and values alone."""

    summary = "tokens leave early at one of two layers, their states are copied upward"
    paper = (
        "CALM: Schuster et al. 2022, arXiv 2207.07061; depth-adaptive transformer: Elbayad et al. "
        "2019, arXiv 1910.10073"
    )
    differs = (
        "Exits are two; saturation and the classifier still compute the logits of each exit, so "
        "that what they save is the layers alone."
    )
    exits = 2
    memory = "the hidden states of two layers, for saturation of up to four"
    family = "copied states"

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, CopiedExitOptions]]:
        """Per pair of neighbouring exits, thresholds from safe to risky."""
        for first, second in pairwise(exit_depths(facts.target.num_layers)):
            for measure, bars in BARS.items():
                for bar in bars if can_measure(facts, measure, first, second) else ():
                    name = f"after layers {first} and {second} by {measure}"
                    yield name, CopiedExitOptions(first, second, measure, bar)

    def plan(self, facts: ProblemFacts, options: CopiedExitOptions) -> Plan:
        """The first layers; where they are not sure the next; where these are not, all."""
        layers = options.first, options.second
        return copied_plan(facts, self, layers, options.measure, options.bar, FALLING)


METHOD = CopiedExit()
