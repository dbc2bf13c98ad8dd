"""Rounds that leave out blocks which a source tells: priced as any set of so many blocks."""

from __future__ import annotations

import pytest

from specplan.cost_models.clock import Clock
from specplan.cost_models.demands import ForwardDemand, round_demands
from specplan.cost_models.pricing import RoundPrice, price_round
from specplan.cost_models.timing.device import load_device
from specplan.ir.blocks import NO_SKIPS, Skips, spread
from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from tests.cost_models.public_shapes import shape
from tests.ir.plans_on_disk import plan_of, text_of


def seconds(plan: Plan) -> float:
    clock = Clock(load_device("h200"), {"target": shape("llama-2-7b", "float16")}, 2, 300)
    found = price_round(round_demands(plan, plan.round("decode")), clock, {})
    assert isinstance(found, RoundPrice)
    return float(found.seconds.median)


def test_passes_leave_out_as_many_as_the_source_says() -> None:
    """A trial runs the root and all nodes anew: nothing that was drafted is before them."""
    plan, skips = plan_of("searched_blocks"), spread(32, 13, 13)
    steps = round_demands(plan, plan.round("search")).steps
    passes = [step for step in steps if isinstance(step, ForwardDemand)]
    assert [(one.tokens, one.pending, one.drafted_before, one.skips) for one in passes] == [
        *((1, 0, before, skips) for before in (0, 0, 1, 2)),
        (5, 0, 0, skips),
        (5, 0, 0, NO_SKIPS),
    ]


@pytest.mark.parametrize("first", [1, 18])
def test_any_named_set_of_so_many_blocks_has_the_price(first: int) -> None:
    layers = range(first, first + 13)
    named = print_atom(Skips.of(layers, layers).words)
    whole = plan_of("searched_blocks")
    said = parse_plan(
        text_of("searched_blocks").replace("skip=@skips write", f"skip={named} write")
    )
    fewer = parse_plan(text_of("searched_blocks").replace("attention=13", "attention=12"))
    assert seconds(said) == pytest.approx(seconds(whole), rel=1e-12)
    assert seconds(fewer) > seconds(whole)
