"""A token leaves the target after its lower layers where these are sure of it.

Two depths (FREE, Bae et al. 2023, arXiv 2310.05424): the deep layers skip a token that the lower
ones are sure of, and take it in later, together with the next token that needs them or when eight
wait (the recomputation of EE-LLM, arXiv 2312.04916), so that no key or value is ever missing or
approximate. How sure they are is CALM's softmax margin (arXiv 2207.07061), the highest
probability, or the entropy (DeeBERT, arXiv 2004.12993). Lossy: what a sure exit emits is the
lower layers' own. Thresholds are calibrated to a limit (`limits.quality`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.exits import SURE, Exits, exit_depths, exit_plan, put_off

UNSURE = {"margin": "c < b", "top1": "c < b", "entropy": "c > b"}
BARS = {"margin": SURE, "top1": SURE, "entropy": (0.05, 0.2, 0.5, 1.0, 2.0)}
"""Of entropy in nats."""


@dataclass(frozen=True)
class ConfidentExitOptions(Options):
    """Where a token may leave, and how sure it must be."""

    reads = "exit after layer {exit_layer} by {measure} {bar}"

    exit_layer: Annotated[int, Option("layers that every token runs")]
    measure: Annotated[str, Option("how sure they are: margin, top1, entropy")]
    bar: Annotated[float, Option("threshold of the measure, calibrated")]


class ConfidentExit(Exits[ConfidentExitOptions]):
    """Cheaper tokens where the lower layers were trained to predict them."""

    summary = "tokens leave the target early where its lower layers are sure"
    paper = (
        "FREE: Bae et al. 2023, arXiv 2310.05424; EE-LLM: Chen et al. 2023, arXiv 2312.04916; "
        "entropy: DeeBERT, Xin et al. 2020, arXiv 2004.12993"
    )
    differs = (
        "Thresholds come from calibration on prompts (FREE estimates them from a Beta mixture "
        "while it decodes); the target's exits are those it was trained with, by LayerSkip's loss."
    )
    memory = "the hidden states of one layer"
    family = "confident exits"

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, ConfidentExitOptions]]:
        """Per exit layer and measure, thresholds from safe to risky."""
        for layer in exit_depths(facts.target):
            for measure, bars in BARS.items():
                for bar in bars:
                    name = f"after layer {layer} by {measure}"
                    yield name, ConfidentExitOptions(layer, measure, bar)

    def plan(self, facts: ProblemFacts, options: ConfidentExitOptions) -> Plan:
        """Lower layers, how sure they are, and the others for what is not or waits."""
        layer, last = options.exit_layer, facts.target.num_layers
        lower = f"%s = forward target %t cache=@kv pending=1 layers=[0:{layer}] keep=@x{layer}"
        deep = put_off(layer, last, UNSURE[options.measure], "c=%c b=%b")
        body = f"{lower}\n%c = measure %s {options.measure}\n{deep}"
        return exit_plan(facts, self, body, options.bar, (layer,))


METHOD = ConfidentExit()
