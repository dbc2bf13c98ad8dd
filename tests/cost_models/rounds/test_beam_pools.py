"""Trees grown by a beam: read off the ops of a round, and priced against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specplan.cost_models.acceptance.drafters import Beam
from specplan.cost_models.acceptance.evidence.base import Drafting, Evidence, read_drafting
from specplan.cost_models.acceptance.evidence.hazards import Hazards
from specplan.cost_models.acceptance.evidence.pool_rounds import BeamPool, read_pool
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import OpRow
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, Unpriced, price_round
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from tests.cost_models.rounds.test_pricing import SHAPES, measured
from tests.ir.plans_on_disk import plan_of
from tests.plan_texts import drafted

BODY = """
  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=2
  %t1 = grow %t0 at=%t0 logits=%q0 children=2
  %pool = repeat 2 (%t = %t1) {
    %f = pick %t of=newest best=2
    %q = forward draft %f cache=@dkv
    %n = grow %t at=%f logits=%q children=2
    yield %n
  }
  %b = pick %pool of=all best=4
  %c = prune %pool to=%b
"""
DEEP, SHORT, NONE = (0, 0, 1, 1, 2, 2, 3), (1, 0, 0, 3), (1,)
PROFILE = AcceptanceProfile(
    AcceptanceKey(Beam("draft", 2)),
    Pools(3, ((DEEP, SHORT, SHORT, NONE, NONE, SHORT, NONE),), beam=2),
)


def plan_with(*changes: tuple[str, str]) -> Plan:
    text = drafted(BODY)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_plan(text)


def pool_of(plan: Plan) -> BeamPool | None:
    return read_pool(round_types(plan, plan.rounds[0]))


def test_the_tree_is_read_off_the_round() -> None:
    assert pool_of(plan_with()) == BeamPool(beam=2, layers=3, nodes=4, cache="dkv")
    deeper = plan_with(("repeat 2", "repeat 5"), ("best=4", "best=9"))
    assert pool_of(deeper) == BeamPool(2, 6, 9, "dkv")
    whole = plan_with(
        ("  %b = pick %pool of=all best=4\n  %c = prune %pool to=%b\n", ""), ("%pool", "%c")
    )
    assert pool_of(whole) == BeamPool(2, 3, 10, "dkv")


@pytest.mark.parametrize(
    "changes",
    [
        (("children=2\n  %pool", "children=3\n  %pool"),),
        (("%f logits=%q children=2", "%f logits=%q children=3"),),
        (("newest best=2", "newest best=2 by=own"),),
        (("newest best=2", "newest worst=2"),),
        (("newest best=2", "all best=2"),),
        (("of=all best=4", "of=all best=4 by=own"),),
        (("of=all best=4", "of=leaves"),),
        (("%f logits=%q children=2", "%f logits=%q children=2 keep=3"),),
    ],
    ids=lambda changes: changes[0][1].strip()[:40],
)
def test_other_trees_are_no_beams(changes: tuple[tuple[str, str], ...]) -> None:
    plan = plan_with(*changes)
    assert pool_of(plan) is None
    drafting = read_drafting(plan, plan.rounds[0], PROFILE.evidence)
    assert isinstance(drafting, Unpriced) and "no beam grows" in str(drafting)


def test_other_trees_of_the_language_are_no_beams() -> None:
    for name in ("growing_tree", "expand_rerank", "merged_trees", "static_tree", "draft_chain"):
        plan = plan_of(name)
        assert pool_of(plan) is None, name


def test_what_is_emitted_and_how_often_the_draft_lags() -> None:
    """Of 3 layers and 4 nodes: 3, 0, 0 and 1 accepted tokens; the third layer was never run."""
    plan = plan_with()
    drafting = read_drafting(plan, plan.rounds[0], PROFILE.evidence)
    assert isinstance(drafting, Drafting)
    assert drafting.tokens_per_round.mean == pytest.approx(1 + (3 + 0 + 1) / 3)
    assert drafting.lag(1) == {"dkv": pytest.approx(1 / 3)}
    assert drafting.lag(2) == {"dkv": pytest.approx(1 - (2 / 3) ** 2)}
    draws = drafting.token_draws
    assert draws is not None and draws.std() > 0


def test_a_round_is_the_sum_of_its_ops() -> None:
    """Three draft passes of 1 (or 2), 2 and 2 nodes, five tokens verified; see `measured`."""
    plan = plan_with()
    drafting = read_drafting(plan, plan.rounds[0], PROFILE.evidence)
    assert isinstance(drafting, Drafting)
    pricer = RoundPricer(measured_choices(), SHAPES, 1, 0.0)
    price = price_round(drafting.demands, pricer, drafting.lag(1))
    assert isinstance(price, RoundPrice), price
    passes = (11.0 + 1 / 3) + 12.0 + 12.0 + 2 / 1000  # two nodes stand before the third pass
    grown = 0.12 + 2 * 0.14  # new nodes: 2, then 4 and 4
    chosen = (0.4 + 0.02) + (0.4 + 0.04) + (0.4 + 0.10)  # among 2, 4 and all 10
    stored, verified, judged, glue = 0.6 + 0.04, 105.0, 0.24, 0.5
    expected = passes + grown + chosen + stored + verified + judged + glue
    assert price.seconds.median == pytest.approx(expected)
    by_name = {(part.op, part.width): part.times for part in price.breakdown}
    assert by_name["pick:best", 10] == 1 and by_name["prune", 4] == 1
    assert by_name["grow:best", 4] == 2 and by_name["forward", 5] == 1


def measured_choices() -> MeasuredDevice:
    """`measured`, where choosing takes 0.4 and pruning 0.6, + width / 100 seconds."""
    table = measured().table
    for op, base in (("pick:best", 0.4), ("prune", 0.6)):
        for width in (0, 16):
            seconds = base + width / 100
            table.add(OpRow(seconds, seconds, seconds, 3, op=op, batch=1, width=width))
    return MeasuredDevice(table)


def test_devices_that_do_not_know_its_ops_say_so() -> None:
    plan = plan_with()
    sizes = {"batch": 1, "prompt_tokens": 8, "output_tokens": 8}
    estimate = Pricer(measured(), SHAPES, **sizes).estimate(plan, PROFILE)
    assert isinstance(estimate, Unpriced) and "'prune' was not measured" in str(estimate)
    assert isinstance(
        Pricer(load_device("h200"), SHAPES, **sizes).estimate(plan, PROFILE), Estimate
    )


def test_profiles_that_do_not_fit_say_so() -> None:
    def reason(evidence: Evidence | None, plan: Plan) -> str:
        drafting = read_drafting(plan, plan.rounds[0], evidence)
        assert isinstance(drafting, Unpriced)
        return str(drafting)

    plan, deeper = plan_with(), plan_with(("repeat 2", "repeat 4"))
    assert "no acceptance profile" in reason(None, plan)
    assert "shape depends on data" in reason(Hazards(((0.5,),)), plan)
    pools = PROFILE.evidence
    assert isinstance(pools, Pools)
    other = replace(pools, beam=4)
    assert "by a beam of 4, the plan grows 3 by one of 2" in reason(other, plan)
    assert "3 layers by a beam of 2, the plan grows 5" in reason(pools, deeper)
    assert "no beam grows" in reason(pools, plan_of("static_tree"))
