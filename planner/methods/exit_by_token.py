"""A token leaves the target early where tokens like it are known to need few layers.

Hash early exit (Sun et al. 2022, arXiv 2203.01670): a table gives each token the layer after which
it leaves, so that nothing is measured while decoding and no classifier runs. Here the table says
how often the next token is settled after each layer (`token_exits` of the problem); a token leaves
where that share reaches a threshold, which is calibrated to a limit (`limits.quality`). The deep
layers catch up later, as in `confident_exit`, so that no key or value is missing. Lossy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.token_exits import read_token_exits, settled_tokens
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.exits import SURE, Exits, exit_depths, exit_plan, put_off

MOST_TOKENS = 1024
"""Tokens that a plan lists; those whose next token is settled most often."""


@dataclass(frozen=True)
class ExitByTokenOptions(Options):
    """Where a token may leave, and how often its like must be settled there."""

    reads = "exit after layer {exit_layer} of tokens settled in {bar:.0%}"

    exit_layer: Annotated[int, Option("layers that every token runs")]
    bar: Annotated[float, Option("share of places where it is settled, calibrated")]


class ExitByToken(Exits[ExitByTokenOptions]):
    """Asks nothing of the layers, so that a batch knows its depths before it runs."""

    summary = "tokens leave the target early that a table lists"
    paper = "Sun et al. 2022, arXiv 2203.01670"
    differs = (
        "The table is measured or given and the target is not trained with it; a plan has one exit "
        f"layer and lists at most {MOST_TOKENS} tokens, and what left early is completed later."
    )
    memory = "the hidden states of one layer"
    family = "exits by token"

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """Also without a table."""
        if facts.problem.token_exits is None:
            return Reason(
                "no table of exits by token is given: measure one with `specplan profile "
                "token-exits` and name it as token_exits",
                Cause.OPT_IN,
            )
        return super().unavailable(facts)

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, ExitByTokenOptions]]:
        """Per exit layer, thresholds from safe to risky, where they differ."""
        for layer in exit_depths(facts.target.num_layers):
            lists = set[tuple[int, ...]]()
            for bar in SURE:
                leaving = tuple(_listed(facts, layer, bar))
                if leaving and leaving not in lists:
                    lists.add(leaving)
                    yield f"after layer {layer}", ExitByTokenOptions(layer, bar)

    def plan(self, facts: ProblemFacts, options: ExitByTokenOptions) -> Plan:
        """Lower layers, what the table says of the token, and the others where it is to go on."""
        layer, last = options.exit_layer, facts.target.num_layers
        listed = _listed(facts, layer, SURE[-1])
        tokens, numbers = print_atom(tuple(listed)), print_atom(tuple(listed.values()))
        lower = f"%s = forward target %t cache=@kv pending=1 layers=[0:{layer}] keep=@x{layer}"
        table = f"%c = measure %t listed(tokens={tokens}, numbers={numbers})"
        deep = put_off(layer, last, "c < b", "c=%c b=%b")
        return exit_plan(facts, self, f"{lower}\n{table}\n{deep}", options.bar, (layer,))


def _listed(facts: ProblemFacts, layer: int, least: float) -> dict[int, float]:
    assert facts.problem.token_exits is not None, "else there are no settings"
    shares = read_token_exits(facts.problem.token_exits, facts.target)
    return settled_tokens(shares, layer, least, MOST_TOKENS)


METHOD = ExitByToken()
