"""Plans of systems in the literature, each in one round or a few: what the language can say."""

from __future__ import annotations

import pytest

from specplan.ir import parse_plan, plan_from_json, plan_to_json, print_plan, verify_plan
from tests.ir.plans_on_disk import FOLDER

LEDGER = {
    path.stem: path.read_text(encoding="utf-8") for path in (FOLDER / "ledger").glob("*.plan")
}
every_plan = pytest.mark.parametrize("name", sorted(LEDGER))

BROKEN = {
    "a head that looks two tokens ahead does not draft the third": (
        "B3_medusa", "levels=3", "levels=2", "lineage"),
    "of four kept levels the first belongs to the root itself": (
        "C2_C3_bita", "shift=1 levels=3", "shift=1 levels=4", "features"),
    "levels per node need one number each": (
        "C4_ppd", "[4, 4, 3, 2, 4, 3, 2, 4]", "[4, 4, 3]", "children"),
    "a cache reads another model's": ("B18_glide", "reads=@kv", "reads=@dkv", "state"),
    "a mixture is not the target's law": (
        "O3_contrastive", "law=stated", "law=target", "lossless"),
    "rows of a reduced cache state no law": (
        "O3_contrastive", "state @dkv = cache amateur",
        "state @dkv = cache amateur policy=sink_recent(sink=2) budget=8", "lossless"),
    "one model is no ensemble": ("O6_ensemble", "mix %l %m %o law", "mix %l law", "arity"),
    "a bar that nobody tested bounds nothing": (
        "M2_calm", "value calibrated(init=0.9)", "value number(init=0.9)", "lossless"),
    "an early exit is not exact": (
        "M2_calm", "law=bounded(loss=0.1, risk=0.05)", "law=target", "lossless"),
    "a bounded law says its loss": ("M2_calm", "loss=0.1, ", "", "entry"),
    "a measure of the batch decides draws": (
        "J3_bass", "assume reproducible=false\n", "", "reproducible"),
    "a part of a model that is not there": (
        "Q2_matformer", "of=target", "of=other", "state"),
    "independent draws are not dropped": (
        "G5_rsd_s", "how=draw_distinct by=%u keep=4", "how=draw by=%u keep=4", "lossless"),
    "a score of nothing": ("B2_rescored", "score %w logits=%q", "score %w", "arity"),
    "a bar is a number": ("B18_glide", "above=%zero", "above=%t0", "type"),
    "threads by an entry that is not there": ("N14_skeleton", "by=points(", "by=pionts(", "entry"),
    "a guard knows no such name": (
        "L4_languages", '"group == 1"', '"grape == 1"', "formula"),
    "rows that are not there yet": (
        "A4_staged_tree", "adopt %g %i\n", "adopt %g %i logits=%q2\n", "ssa"),
}  # fmt: skip


@every_plan
def test_it_is_well_formed_and_canonical(name: str) -> None:
    plan = parse_plan(LEDGER[name])
    assert verify_plan(plan) == ()
    assert print_plan(plan) == LEDGER[name]
    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.parametrize("why", BROKEN)
def test_an_edit_is_refused_by_the_rule_meant(why: str) -> None:
    name, old, new, rule = BROKEN[why]
    assert LEDGER[name].count(old) >= 1
    findings = verify_plan(parse_plan(LEDGER[name].replace(old, new)))
    assert rule in {one.rule for one in findings}, findings
