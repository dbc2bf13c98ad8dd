"""Chains that are carried on, grow from their tips, and are judged as far as they have rows."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.eager.lanes import lanes_of
from specplan.backends.ops.reroot import reroot
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.keys import FIRST_KEY, key_after
from specplan.backends.ops.tensors.trees import extended, padded_to, with_own_probs
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.capabilities import refusals
from specplan.ir.ops import Reroot
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import Value
from specplan.passes.pipeline import run_passes
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined, edited
from tests.backends.pairs import in_batches, load_pair, plainly
from tests.backends.window_plans import windows

REQUESTS = [
    Request(
        prompt_tokens=tuple((i * 7 + p * (i % 3 + 1)) % 61 for p in range(3 + i * 3)),
        max_new_tokens=20 + i,
        seed=i,
        stop_tokens=(7,) if i % 3 == 0 else (),
    )
    for i in range(8)
]
SAMPLED = [Request(**{**vars(one), "temperature": 0.7, "top_k": 30}) for one in REQUESTS]


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


@pytest.mark.parametrize("drawn", [False, True])  # at temperature 0 draws are best choices
def test_output_is_that_of_plain_decoding(drawn: bool, models: dict[str, CausalModel]) -> None:
    some = REQUESTS[::2]
    expected = plainly(models, some)
    for length, batch in ((2, 4), (3, 1), (5, 4)):
        plan = parse_plan(windows(length, drawn=drawn))
        assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
        assert in_batches(plan, models, some, batch) == expected


def _hits(models: dict[str, CausalModel], request: Request, right: tuple[int, ...]) -> list[bool]:
    """By place of the target's text, whether the draft model would write the same token."""
    draft = {"target": models["draft"]}
    hits = []
    for place in range(len(right)):
        text = (*request.prompt_tokens, *right[:place])
        one = Request(prompt_tokens=text, max_new_tokens=1)
        hits.append(plainly(draft, [one])[0][0] == right[place])
    return hits


@pytest.mark.parametrize("length", [2, 4])
def test_rounds_are_those_of_the_two_states(length: int, models: dict[str, CausalModel]) -> None:
    """After a rejection one token is judged, and as long as all are accepted a whole window."""
    requests = [Request(prompt_tokens=one.prompt_tokens, max_new_tokens=30) for one in REQUESTS[:3]]
    right = plainly(models, requests)
    hits = [_hits(models, *one) for one in zip(requests, right, strict=True)]
    session = EagerBackend().compile(parse_plan(windows(length)), models).start(requests)
    session.prefill()
    places, streaks = [0] * 3, [False] * 3
    kinds = set()
    for _ in range(30):
        if any(place > 30 - 2 * length for place in places):
            break
        counts = [*map(len, session.step("decode").tokens)]
        window = session.batch.values["window"]
        assert isinstance(window, Tree)
        for row, place in enumerate(places):
            judged = hits[row][place : place + (length if streaks[row] else 1)]
            passed = (*judged, False).index(False)
            kinds.add((streaks[row], passed))
            streaks[row] = passed == len(judged)
            assert counts[row] == passed + (not streaks[row])
            assert window.live[row, 1:].tolist() == [streaks[row]] * (length - 1)
            places[row] += counts[row]
            drafted = session.batch.caches["dkv"].whole[row]
            assert drafted >= session.lengths[row] - 1  # no pass but the round's own is needed
    assert {(False, 0), (False, 1), (True, 0), (True, length)} <= kinds
    assert len({streak for streak, _ in kinds}) == 2


def test_lanes_at_once_give_what_lanes_in_turns_give(models: dict[str, CausalModel]) -> None:
    plan = parse_plan(windows(4, drawn=True))
    ran: dict[bool, set[tuple[str, str]]] = {}
    outputs = {}
    for at_once in (False, True):
        executable = EagerBackend().compile(plan, models)
        executable.side_by_side = at_once
        seen = ran.setdefault(at_once, set())
        hooks = [
            model.head.register_forward_pre_hook(
                lambda *_, name=name, seen=seen: seen.add((name, threading.current_thread().name))
            )
            for name, model in models.items()
        ]
        outputs[at_once] = [item.tokens for item in generate(executable, SAMPLED).completions]
        for hook in hooks:
            hook.remove()
    assert outputs[True] == outputs[False]
    assert {thread for _, thread in ran[False]} == {threading.current_thread().name}
    assert {name for name, thread in ran[True] if thread.startswith("lane")} == {"draft"}


def test_lanes_are_lanes_after_all_passes(models: dict[str, CausalModel]) -> None:
    plan = parse_plan(windows(3, drawn=True))
    lowered = run_passes(plan)
    assert lowered != plan and verify_plan(lowered) == () == refusals(lowered, CAPABILITIES)
    assert len(lanes_of(lowered, models)) == 1
    some = SAMPLED[:4]
    assert in_batches(lowered, models, some, 4) == in_batches(plan, models, some, 4)


def test_an_error_in_a_lane_is_reported(models: dict[str, CausalModel]) -> None:
    executable = EagerBackend().compile(parse_plan(windows(2)), models)
    executable.side_by_side = True
    session = executable.start(REQUESTS[:1])
    session.prefill()
    del session.batch.caches["dkv"]
    with pytest.raises(KeyError, match="dkv"):
        session.step("decode")


BESIDE = windows(2)
LANES = {
    "two models": (BESIDE, 1),
    "no lanes": (BESIDE.replace(" lane=a", ""), 0),
    "one lane": (BESIDE.replace("lane=b", "lane=a"), 0),
    "one model": (BESIDE.replace("forward draft", "forward target")
        .replace("cache draft", "cache target"), 0),
    "a source that others read": (BESIDE.replace("state @w", "state @s = source ngram\nstate @w")
        .replace("    %tip", "    update @s %w last=1\n    %tip"), 0),
    "rows of the other lane": (BESIDE.replace("logits=%q0", "logits=%l"), 0),
    "an op between them": (BESIDE.replace("  %c = seg", "  %x = root\n  %c = seg"), 0),
}  # fmt: skip


@pytest.mark.parametrize(("text", "groups"), LANES.values(), ids=LANES)
def test_lanes_run_at_once_where_they_share_nothing(
    text: str, groups: int, models: dict[str, CausalModel]
) -> None:
    groups_of = lanes_of(parse_plan(text), models)
    assert len(groups_of) == groups
    assert all([op.lane for op in group] == ["a", "b"] for group in groups_of.values())
    assert not lanes_of(parse_plan(text), {"target": models["target"], "draft": models["target"]})


DRAWN = windows(3, drawn=True)
RANKED = windows(3)
TIP = "%q0 = forward draft %w cache=@dkv pending=1\n    %tip = pick %w of=leaves"
EDITS: dict[str, tuple[str, dict[str, str]]] = {
    "rows of some nodes": (RANKED, {
        "%q0 = forward draft %w": "%g = pick %w of=all\n    %q0 = forward draft %g",
        "@dkv pending=1": "@dkv pending=3"}),
    "tips that run": (RANKED, {
        TIP: "%tip = pick %w of=leaves\n    %q0 = forward draft %tip cache=@dkv pending=2"}),
    "draws below what was given": (DRAWN, {", how=draw": ""}),
    "several children of the tip": (RANKED, {
        "logits=%q0": "logits=%q0 children=2", "depth=2)": "depth=2, parents=[-1, 0])",
        "  %r = reroot %c %e nodes=2": "  %g = root\n  %r = lookup @text %g at=%g length=2"}),
}  # fmt: skip
"""Of chains that are carried on, ops that nobody's method puts together."""


@pytest.mark.parametrize("name", EDITS)
def test_other_compositions_decode_as_is_defined(name: str, models: dict[str, CausalModel]) -> None:
    text, edits = EDITS[name]
    decodes_as_defined(edited(text, edits), models, REQUESTS[:3])
    if "how=draw" in text:
        decodes_as_defined(edited(text, edits), models, SAMPLED[:3])


BROKEN: dict[str, tuple[str, dict[str, str], str]] = {
    "shared draws in a state of others": (
        DRAWN, {"how=draw by=%u0": "how=shared by=%u0"}, "takes nodes of how=draw only"),
    "two children in a state of chains": (
        RANKED, {"logits=%q0": "logits=%q0 children=2"}, "is declared for chains"),
    "tips that run late": (RANKED, {
        TIP: "%tip = pick %w of=leaves\n    %q0 = forward draft %tip cache=@dkv pending=1"},
        "give pending=2"),
    "what is drawn and ranked": (DRAWN, {" how=draw by=%u0": ""}, "takes nodes of how=draw only"),
    "more than a state holds": (
        RANKED, {"store @window %r": "store @window %c"}, "@window holds 2 in 2"),
    "no row of the root": (
        RANKED, {"%o = forward target %w": "%z = pick %w of=all\n    %o = forward target %z"},
        "a round may emit nothing"),
    "no nodes": (RANKED, {"nodes=2, depth=2": "nodes=0, depth=0"}, "holds 0 in 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_carried_on_breaks_a_rule(name: str) -> None:
    text, edits, reason = BROKEN[name]
    findings = verify_plan(parse_plan(edited(text, edits)))
    assert any(reason in str(one) for one in findings), findings


def test_a_tree_of_another_shape_is_judged_whole(models: dict[str, CausalModel]) -> None:
    """Verified after it was drafted: rows for all nodes, and a bonus at the end."""
    text = windows(3)
    lane = text[text.index("  %l = ") : text.index("  %c = ")]
    serial = text.replace(lane, "").replace(
        "  %a = accept", "  %l = forward target %c cache=@kv pending=1\n  %a = accept"
    )
    plan: Plan = parse_plan(serial)
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    expected = plainly(models, REQUESTS)
    assert in_batches(plan, models, REQUESTS, 3) == expected


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_left_of_a_chain_below_a_path(data: st.DataObject) -> None:
    """Against a walk by hand: tokens and laws behind the emitted ones, if the chain says these."""
    window, grown = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 4))
    size, batch = window + grown, data.draw(st.integers(1, 3))
    tokens = torch.tensor(
        [[data.draw(st.integers(0, 1)) for _ in range(size)] for _ in range(batch)]
    )
    tips = torch.tensor([[data.draw(st.integers(0, window))] for _ in range(batch)])
    one = torch.ones(batch, 1, dtype=torch.int64)
    tree = first_tree(one, one * FIRST_KEY, None)
    for place in range(size):
        parents = tips if place == window else one * place
        live = place < tips if place < window else one > 0
        tree = extended(tree, parents, tokens[:, place : place + 1], live, probs_row=one * place)
    laws = torch.rand(batch, size, 2)
    tree = replace(tree, probs=(laws,), in_order=False)
    live, emitted, roots = tree.live[:, 1:], list[list[int]](), list[int]()
    for row in range(batch):
        chain = tokens[row][live[row]].tolist()
        path = chain[: data.draw(st.integers(0, len(chain)))]
        emitted.append([*path, *data.draw(st.lists(st.integers(0, 1), max_size=2))])
        roots.append(reduce(key_after, emitted[-1], FIRST_KEY))
    nodes = data.draw(st.integers(0, size))
    kind = TreeType(nodes=nodes, depth=nodes, parents=None)
    root = first_tree(one, torch.tensor(roots)[:, None], None)
    left = reroot(Reroot(tree=Value("t"), path=Value("e")), tree, kind=kind, root=root)
    assert left.size == nodes and left.chain
    stored = with_own_probs(padded_to(left, 1 + size))
    for row, path in enumerate(emitted):
        chain, drawn = tokens[row][live[row]].tolist(), laws[row][live[row]]
        rest = chain[len(path) :][:nodes] if chain[: len(path)] == path else []
        for chain_left in (left, stored):
            assert chain_left.live[row, 1:].tolist() == [
                n < len(rest) for n in range(chain_left.size)
            ]
            assert chain_left.tokens[row, 1 : 1 + len(rest)].tolist() == rest
            assert chain_left.all_probs is not None
            for place, law in enumerate(chain_left.probs_row[row, 1 : 1 + len(rest)].tolist()):
                assert torch.equal(chain_left.all_probs[row, law], drawn[len(path) + place])
