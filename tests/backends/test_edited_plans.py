"""Edited plans, randomly and by hand: what verifies decodes as the target does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from specplan.ir import parse_plan, print_plan, verify_plan
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.runtime.requests import Request
from tests.backends import test_layer_spans as layer_spans
from tests.backends.definition import decodes_as_defined, edited
from tests.backends.dynamic_trees import dynamic_text
from tests.backends.pairs import load_pair, plainly, run
from tests.ir.edits import change_name, delete, duplicate, swap
from tests.ir.plans_on_disk import plan_of, text_of
from tests.matrix import sized

TWO_TREES = """plan two_trees
model target
model draft
state @kv = cache target
state @dkv = cache draft
round decode {
  %t0 = root
  %q = forward draft %t0 cache=@dkv pending=4
  %a = grow %t0 at=%t0 logits=%q children=2
  %qa = forward draft %a cache=@dkv
  %b = grow %a at=%a logits=%qa children=[0, 1, 2]
  %l0 = forward target %b cache=@kv pending=1
  %x = accept %b target=%l0
  %e = emit %x
  commit @kv %e
  commit @dkv %e
}
"""
JOINED = """plan joined
model target
model draft
state @kv = cache target
state @dkv = cache draft
state @ekv = cache draft
round decode {
  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=3
  %a = grow %t0 at=%t0 logits=%q0 children=2
  %s0 = root
  %b = repeat 2 (%t = %s0) {
    %f = pick %t of=newest
    %q = forward draft %f cache=@ekv pending=4
    %n = grow %t at=%f logits=%q
    yield %n
  }
  %r0 = root
  %d = lookup @text %r0 at=%r0 match=[1, 2] length=2
  %c = graft %a %b %d same=merge
  %l = forward target %c cache=@kv pending=1
  %x = accept %c target=%l
  %e = emit %x
  commit @kv %e
  commit @dkv %e
  commit @ekv %e
}
"""
VOTES = JOINED.replace(
    "%c = graft %a %b %d same=merge",
    "%p = graft %a %b %d same=merge\n  %k = pick %p of=all best=4\n  %c = prune %p to=%k",
)
BASES = (
    *map(
        text_of,
        ("draft_chain", "static_tree", "prompt_lookup", "autoregressive", "schedule", "staged"),
    ),
    TWO_TREES,
    JOINED,
    VOTES,
    layer_spans.text_of(layer_spans.CHAIN_1),
    layer_spans.text_of(layer_spans.TREE),
    dynamic_text(3, 3, 7),
)
RUNS = sized(40, 150)


def number(lines: list[str], chance: random.Random) -> None:
    """A number of the plan becomes another small one."""
    at = chance.randrange(6, len(lines))
    digits = [i for i, mark in enumerate(lines[at]) if mark.isdigit()]
    if digits:
        place = chance.choice(digits)
        lines[at] = lines[at][:place] + str(chance.randint(0, 6)) + lines[at][place + 1 :]


def edited_plan(seed: int) -> Plan | None:
    """A well-formed lossless plan made by a few edits, if this seed gives one."""
    chance = random.Random(seed)
    lines = chance.choice(BASES).splitlines(keepends=True)
    for _ in range(chance.randint(1, 4)):
        chance.choice((change_name, change_name, number, number, delete, duplicate, swap))(
            lines, chance
        )
    try:
        plan = parse_plan("".join(lines))
    except UsageError:
        return None
    return plan if plan.assumptions.lossless and not verify_plan(plan) else None


def test_well_formed_plans_decode_as_the_target(pair_folder: Path) -> None:
    models, chance = load_pair(pair_folder), random.Random(0)
    requests = [
        Request(prompt_tokens=tuple(chance.randrange(61) for _ in range(size)), max_new_tokens=10)
        for size in (3, 11)
    ]
    requests.append(Request(prompt_tokens=(5, 6, 7, 8) * 4, max_new_tokens=10))
    expected = plainly(models, requests)
    seen: set[str] = set()
    ran = 0
    for seed in range(60_000):
        plan = edited_plan(seed)
        if plan is None or (text := print_plan(plan)) in seen:
            continue
        seen.add(text)
        try:
            assert run(plan, models, requests) == expected, text
        except UsageError as error:  # its spans of layers end where the target's stack does not
            assert "ends the stack of target" in str(error)
            continue
        ran += 1
        if ran == RUNS:
            break
    assert ran == RUNS


EDITS: dict[str, tuple[str, dict[str, str]]] = {
    "a tree runs twice": (
        "static_tree", {"forward draft %f1 ": "forward draft %t1 ", "draft %f2 ": "draft %t2 "}),
    "trees that branch apart": (
        "static_tree", {"%l = forward": "%t9 = grow %t1 at=%f1 logits=%q1\n"
        "  %q9 = forward draft %t9 cache=@dkv\n  %l = forward"}),
    "looked up below drafted nodes": (
        "static_tree", {"%l = forward target %t3": "%t4 = lookup @text %t3 at=%f2 length=2\n"
        "  %l = forward target %t4", "pending=2": "pending=3", "uniform 9": "uniform 11",
        "accept %t3": "accept %t4"}),
    "below no tip": ("staged", {"of=from at=%tip": "of=from at=%g"}),
    "judged by the tip alone": ("staged", {"forward draft %n": "forward draft %tip"}),
    "a judged chain runs again": (
        "staged", {"%l = forward target %c": "%d = forward draft %c cache=@dkv\n"
        "  %l = forward target %c"}),
    "nothing drawn at a node": ("static_tree", {"children=[2, 1]": "children=[2, 0]"}),
}  # fmt: skip
"""Of written plans, ops that nobody's method puts together."""


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("name", EDITS)
def test_other_compositions_decode_as_is_defined(
    name: str, temperature: float, pair_folder: Path
) -> None:
    base, edits = EDITS[name]
    text = edited(text_of(base), edits)
    if temperature and parse_plan(text).greedy_only:
        return
    requests = [
        Request(prompt_tokens=prompt, max_new_tokens=7, temperature=temperature, seed=seed)
        for seed, prompt in enumerate(((3, 1, 4, 3, 1), (5,), (2, 7, 2, 7, 2, 7, 2)))
    ]
    decodes_as_defined(text, load_pair(pair_folder), requests)


BROKEN: dict[str, dict[str, str]] = {
    "drawn in two ways": {"children=2 how=draw_distinct": "children=2 how=draw"},
    "drawn twice at a node": {
        "%l = forward target %t3": "%u9 = uniform 1 stream=z\n"
        "  %t9 = grow %t3 at=%t0 logits=%q0 how=draw by=%u9\n  %l = forward target %t9",
        "uniform 9": "uniform 10", "accept %t3": "accept %t9"},
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_siblings_whose_draws_no_rule_judges_are_refused(name: str) -> None:
    findings = verify_plan(parse_plan(edited(text_of("static_tree"), BROKEN[name])))
    assert any(one.rule == "law" and "use one how= for all" in str(one) for one in findings), (
        findings
    )


def test_more_uniforms_than_needed_change_nothing(pair_folder: Path) -> None:
    models = load_pair(pair_folder)
    requests = [
        Request(prompt_tokens=(1, 2, 3), max_new_tokens=10, temperature=1.0, seed=s)
        for s in range(3)
    ]
    more = parse_plan(text_of("draft_chain").replace("uniform 5 ", "uniform 9 "))
    assert run(more, models, requests) == run(plan_of("draft_chain"), models, requests)
