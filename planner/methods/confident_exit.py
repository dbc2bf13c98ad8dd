"""A token leaves the target after its lower layers where these are sure of it.

Two depths (FREE, Bae et al. 2023, arXiv 2310.05424): the deep layers skip a token that the lower
ones are sure of, and take it in later, together with the next token that needs them or when eight
wait (the recomputation of EE-LLM, arXiv 2312.04916), so that no key or value is ever missing or
approximate. How sure they are is one of CALM's three measures (arXiv 2207.07061), the softmax
margin, the similarity of the states of neighbouring layers or a trained classifier; the highest
probability; or the entropy (DeeBERT, arXiv 2004.12993). Lossy: what a sure exit emits is the
lower layers' own. Thresholds are calibrated to a limit (`limits.quality`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    exit_depths,
    exit_plan,
    put_off,
    sure_pass,
)

BARS = {
    "margin": SURE,
    "top1": SURE,
    "entropy": (0.05, 0.2, 0.5, 1.0, 2.0),
    SATURATION: SATURATED,
    CLASSIFIER: SURE,
}
"""Of entropy in nats."""


@dataclass(frozen=True)
class ConfidentExitOptions(Options):
    """Where a token may leave, and how sure it must be."""

    reads = "exit after layer {exit_layer} by {measure} {bar}"

    exit_layer: Annotated[int, Option("layers that every token runs")]
    measure: Annotated[
        str, Option("how sure they are: margin, top1, entropy, saturation, classifier")
    ]
    bar: Annotated[float, Option("threshold of the measure, calibrated")]


class ConfidentExit(Exits[ConfidentExitOptions]):
    """Cheaper tokens where the lower layers were trained to predict them."""

    summary = "tokens leave the target early where its lower layers are sure"
    paper = (
        "FREE: Bae et al. 2023, arXiv 2310.05424; EE-LLM: Chen et al. 2023, arXiv 2312.04916; "
        "measures: CALM, Schuster et al. 2022, arXiv 2207.07061; "
        "entropy: DeeBERT, Xin et al. 2020, arXiv 2004.12993"
    )
    differs = (
        "Thresholds come from calibration on prompts (FREE estimates them from a Beta mixture "
        "while it decodes); the target's exits are those it was trained with, by LayerSkip's loss."
    )
    memory = "the hidden states of one layer, for saturation of two"
    family = "confident exits"

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, ConfidentExitOptions]]:
        """Per exit layer and measure, thresholds from safe to risky."""
        for layer in exit_depths(facts.target.num_layers):
            for measure, bars in BARS.items():
                for bar in bars if can_measure(facts, measure, layer) else ():
                    name = f"after layer {layer} by {measure}"
                    yield name, ConfidentExitOptions(layer, measure, bar)

    def plan(self, facts: ProblemFacts, options: ConfidentExitOptions) -> Plan:
        """Lower layers, how sure they are, and the others for what is not or waits."""
        layer, last = options.exit_layer, facts.target.num_layers
        lower, tracks = sure_pass(facts, options.measure, 0, layer)
        unsure = "c > b" if options.measure == "entropy" else "c < b"
        body = f"{lower}\n{put_off(layer, last, unsure, 'c=%c b=%b')}"
        return exit_plan(facts, self, body, options.bar, tracks)


METHOD = ConfidentExit()
