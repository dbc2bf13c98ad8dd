"""Randomly edited plans: refused with a reason or accepted, never a crash, never a blow-up."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specplan.ir import parse_plan, plan_from_json, plan_to_json, print_plan, verify_plan
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import RULES
from specplan.ir.types.infer import InferenceError, infer_round
from tests.ir.edits import edited
from tests.ir.plans_on_disk import NAMES, plan_of, text_of

MOST_SECONDS = 5.0


def mutant(seed: int) -> str:
    """A plan on disk with one to four edits."""
    chance = random.Random(seed)
    return edited(text_of(chance.choice(NAMES)).splitlines(keepends=True), chance)


def survives(text: str) -> str:
    """What became of a plan text: `unreadable`, `refused` or `accepted`; anything else raises."""
    start = time.perf_counter()
    try:
        plan = parse_plan(text)
    except UsageError as error:
        assert "line" in error.where and "column" in error.where
        return "unreadable"
    printed = print_plan(plan)
    assert parse_plan(printed) == plan and print_plan(parse_plan(printed)) == printed
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan), allow_nan=False))) == plan
    findings = verify_plan(plan)
    assert {item.rule for item in findings} <= set(RULES)
    for item in plan.rounds:
        try:
            infer_round(plan, item)
        except InferenceError as error:
            assert error.error.rule in RULES
            assert findings, "what cannot be typed is refused"
    assert time.perf_counter() - start < MOST_SECONDS
    return "refused" if findings else "accepted"


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(min_value=0))
def test_edited_plans_are_refused_or_accepted(seed: int) -> None:
    survives(mutant(seed))


def test_edits_are_neither_all_refused_nor_all_accepted() -> None:
    fates = [survives(mutant(seed)) for seed in range(1000, 1400)]
    assert all(fates.count(fate) >= 20 for fate in ("unreadable", "refused", "accepted"))


@settings(max_examples=200)
@given(st.text(alphabet='%@"=()[]{}:,.#ab1 \n-e', max_size=80))
def test_noise_is_unreadable(noise: str) -> None:
    assert survives(f"plan p\n{noise}\n") in ("unreadable", "refused")


@settings(max_examples=200)
@given(st.sampled_from(NAMES), st.integers(min_value=0))
def test_edited_json_is_refused_or_read(name: str, seed: int) -> None:
    """A leaf or a branch of the document is replaced by another one."""
    chance = random.Random(seed)
    document = json.loads(json.dumps(plan_to_json(plan_of(name))))
    places: list[tuple[object, object]] = []

    def walk(node: object) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)  # type: ignore[arg-type]
        for key, value in items:
            places.append((node, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(document)
    others = [True, None, -1, 1e400, 10**30, "", "a b", "true", [], {}, {"value": "1x"}]
    (node, key), (donor, from_key) = chance.choice(places), chance.choice(places)
    pool = [*others, donor[from_key]]  # type: ignore[index]
    node[key] = chance.choice(pool)  # type: ignore[index]
    try:
        plan = plan_from_json(json.loads(json.dumps(document)))
    except (UsageError, ValueError) as error:
        assert isinstance(error, UsageError) or "Circular" in str(error)
        return
    assert parse_plan(print_plan(plan)) == plan
    verify_plan(plan)


def _branches() -> str:
    """A loop that grows a small tree off a large one in every trip."""
    return (
        text_of("prompt_lookup")
        .replace("length=10", "length=2000")
        .replace("uniform 11", "uniform 2001")
        .replace(
            "  %l =",
            "  repeat 4000 {\n    %f = pick %c of=leaves\n    %g = place %c at=%c tokens=[1]\n  }\n"
            "  %l =",
        )
    )


def _unrelated() -> str:
    """A loop whose trips draft trees that have nothing in common."""
    return text_of("draft_chain").replace(
        "  %l = ",
        "  repeat 5000 {\n    %z = relabel %c token=1\n"
        "    %o = forward draft %z cache=@dkv\n  }\n  %l = ",
    )


def _nested(levels: int) -> str:
    head = "".join(f"{'  ' * i}repeat 16 {{\n" for i in range(levels))
    tail = "".join(f"{'  ' * i}}}\n" for i in reversed(range(levels)))
    return text_of("autoregressive").replace("  %l =", f"{head}{tail}  %l =")


BLOW_UPS = {
    "long_chain": text_of("draft_chain")
    .replace("repeat 4", "repeat 2000")
    .replace("uniform 5", "uniform 2001"),
    "branches": _branches(),
    "unrelated_trees": _unrelated(),
    "nested_loops": _nested(30),
    "nested_too_deep": _nested(60),
    "wide_grow": text_of("heads").replace("children=4", "children=2000000000"),
    "long_lookup": text_of("prompt_lookup").replace("length=10", "length=2000000000"),
    "large_state": text_of("probes").replace("nodes=3, depth=3", "nodes=9999999, depth=9999999"),
    "large_reroot": text_of("probes").replace("placed nodes=3", "placed nodes=999999999"),
    "many_loops": text_of("autoregressive").replace(
        "  %l =", "  repeat 9999 {\n  }\n" * 400 + "  %l ="
    ),
    "many_uniforms": text_of("draft_chain").replace(
        "  %l =", "  repeat 12000 {\n    %z = uniform 1 stream=z\n  }\n  %l ="
    ),
    "many_names": "plan p\nmodel target\n" + "state @kv = cache target\n" * 3000,
    "long_formula": text_of("skipped_layers").replace("m < b", "m < b" + "+m" * 490),
    "deep_formula": text_of("skipped_layers").replace("m < b", "-" * 900 + "m < b"),
    "deep_list": text_of("heads").replace("nodes=[0]", "nodes=" + "[" * 5000 + "]" * 5000),
    "deep_entry": text_of("heads").replace("delta=0.3", "delta=" + "a(b=" * 3000 + ")" * 3000),
    "long_number": text_of("heads").replace("nodes=[0]", f"nodes=[{'9' * 5000}]"),
    "large_float": text_of("heads").replace("delta=0.3", "delta=1e999"),
}


@pytest.mark.parametrize("text", BLOW_UPS.values(), ids=BLOW_UPS)
def test_sizes_have_ceilings(text: str) -> None:
    survives(text)


def test_a_long_chain_is_fine_and_a_longer_one_is_not() -> None:
    assert survives(BLOW_UPS["long_chain"]) == "accepted"
    assert survives(BLOW_UPS["long_chain"].replace("repeat 2000", "repeat 2049")) == "refused"
