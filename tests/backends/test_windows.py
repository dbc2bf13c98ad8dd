"""Chains that are carried on, grow from their tips, and are judged as far as they have rows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.backends.reference.backend import ReferenceBackend
from specplan.backends.reference.capabilities import CAPABILITIES
from specplan.backends.reference.carrying import filled_to, reroot
from specplan.backends.reference.lanes import lanes_of
from specplan.backends.reference.values import Tree, live_mask
from specplan.ir.capabilities import refusals
from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan
from specplan.ir.verify import verify_plan
from specplan.passes.pipeline import run_passes
from specplan.runtime.generate import generate
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, load_pair, plain, run
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
    expected = in_batches(plain(), models, some, 4)
    for length, batch in ((2, 4), (3, 1), (5, 4)):
        plan = parse_plan(windows(length, drawn=drawn))
        assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
        assert in_batches(plan, models, some, batch) == expected


def _hits(models: dict[str, CausalModel], request: Request, right: tuple[int, ...]) -> list[bool]:
    """By place of the target's text, whether the draft model would write the same token."""
    draft = {"target": models["draft"]}
    told = []
    for place in range(len(right)):
        text = (*request.prompt_tokens, *right[:place])
        one = Request(prompt_tokens=text, max_new_tokens=1)
        told.append(run(plain(), draft, [one])[0][0] == right[place])
    return told


@pytest.mark.parametrize("length", [2, 4])
def test_rounds_are_those_of_the_two_states(length: int, models: dict[str, CausalModel]) -> None:
    """After a rejection one token is judged, and as long as all are accepted a whole window."""
    requests = [Request(prompt_tokens=one.prompt_tokens, max_new_tokens=30) for one in REQUESTS[:3]]
    right = in_batches(plain(), models, requests, 3)
    hits = [_hits(models, *one) for one in zip(requests, right, strict=True)]
    session = ReferenceBackend().compile(parse_plan(windows(length)), models).start(requests)
    session.prefill()
    places, streaks = [0] * 3, [False] * 3
    kinds = set()
    for _ in range(30):
        if any(place > 30 - 2 * length for place in places):
            break
        counts = session.step("decode").counts.tolist()
        window = session.batch.values["window"]
        assert isinstance(window, Tree)
        for row, place in enumerate(places):
            judged = hits[row][place : place + (length if streaks[row] else 1)]
            passed = (*judged, False).index(False)
            kinds.add((streaks[row], passed))
            streaks[row] = passed == len(judged)
            assert counts[row] == passed + (not streaks[row])
            assert live_mask(window)[row].tolist() == [streaks[row]] * (length - 1)
            places[row] += counts[row]
            drafted = session.batch.caches["dkv"].lengths[row]
            assert drafted >= session.lengths[row] - 1  # no pass but the round's own is needed
    assert {(False, 0), (False, 1), (True, 0), (True, length)} <= kinds
    assert len({streak for streak, _ in kinds}) == 2


def test_lanes_at_once_give_what_lanes_in_turns_give(models: dict[str, CausalModel]) -> None:
    plan = parse_plan(windows(4, drawn=True))
    ran: dict[bool, set[tuple[str, str]]] = {}
    found = {}
    for at_once in (False, True):
        executable = ReferenceBackend().compile(plan, models)
        executable.side_by_side = at_once
        seen = ran.setdefault(at_once, set())
        hooks = [
            model._head.register_forward_pre_hook(
                lambda *_, name=name, seen=seen: seen.add((name, threading.current_thread().name))
            )
            for name, model in models.items()
        ]
        found[at_once] = [item.tokens for item in generate(executable, SAMPLED).completions]
        for hook in hooks:
            hook.remove()
    assert found[True] == found[False]
    assert {thread for _, thread in ran[False]} == {threading.current_thread().name}
    assert {name for name, thread in ran[True] if thread.startswith("lane")} == {"draft"}


def test_lanes_are_lanes_after_all_passes(models: dict[str, CausalModel]) -> None:
    plan = parse_plan(windows(3, drawn=True))
    lowered = run_passes(plan)
    assert lowered != plan and verify_plan(lowered) == () == refusals(lowered, CAPABILITIES)
    assert len(lanes_of(lowered, models)) == 1
    some = SAMPLED[:4]
    assert in_batches(lowered, models, some, 4) == in_batches(plan, models, some, 4)


def test_an_error_in_a_lane_is_told(models: dict[str, CausalModel]) -> None:
    executable = ReferenceBackend().compile(parse_plan(windows(2)), models)
    executable.side_by_side = True
    session = executable.start(REQUESTS[:1])
    session.prefill()
    del session.batch.caches["dkv"]
    with pytest.raises(KeyError, match="dkv"):
        session.step("decode")


BESIDE = windows(2)
APART = {
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


@pytest.mark.parametrize(("text", "groups"), APART.values(), ids=APART)
def test_lanes_run_at_once_where_they_share_nothing(
    text: str, groups: int, models: dict[str, CausalModel]
) -> None:
    found = lanes_of(parse_plan(text), models)
    assert len(found) == groups
    assert all([op.lane for op in group] == ["a", "b"] for group in found.values())
    assert not lanes_of(parse_plan(text), {"target": models["target"], "draft": models["target"]})


DRAWN = windows(3, drawn=True)
REFUSED = {
    "shared draws at tips": (DRAWN, "how=draw by=%u0", "how=shared by=%u0", "how deep the tip"),
    "rows of some nodes": (windows(3), "%q0 = forward draft %w", "%g = pick %w of=all\n"
        "    %q0 = forward draft %g", "rows of all are read"),
    "two children": (windows(3), "logits=%q0", "logits=%q0 children=2", "one child grows"),
    "tips that run": (windows(3), "%q0 = forward draft %w cache=@dkv pending=1\n    %tip = "
        "pick %w of=leaves", "%tip = pick %w of=leaves\n    %q0 = forward draft %tip cache=@dkv "
        "pending=1", "not known before it runs"),
    "draws below what was looked up": (DRAWN, ", how=draw", "", "children are ranked"),
    "what is drawn and ranked": (DRAWN, " how=draw by=%u0", "", "not told apart"),
    "what has no shape": (windows(3), "store @window %r", "store @window %w\n"
        "  store @window %c", "one shape for all"),
    "no row of the root": (windows(3), "%o = forward target %w", "%z = pick %w of=all\n"
        "    %o = forward target %z", "with rows of the root and of all of it"),
    "no nodes": (windows(3), "nodes=2, depth=2", "nodes=0, depth=0", "has nodes"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_carried_on_is_refused(text: str, old: str, new: str, reason: str) -> None:
    assert old in text
    plan = parse_plan(text.replace(old, new))
    found: list[Any] = [*refusals(plan, CAPABILITIES), *verify_plan(plan)]
    assert any(reason in str(one) for one in found), found


def test_a_tree_of_another_shape_is_judged_whole(models: dict[str, CausalModel]) -> None:
    """Verified after it was drafted: rows for all nodes, and a bonus at the end."""
    text = windows(3)
    lane = text[text.index("  %l = ") : text.index("  %c = ")]
    serial = text.replace(lane, "").replace(
        "  %a = accept", "  %l = forward target %c cache=@kv pending=1\n  %a = accept"
    )
    plan: Plan = parse_plan(serial)
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    expected = in_batches(plain(), models, REQUESTS, 8)
    assert in_batches(plan, models, REQUESTS, 3) == expected


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_left_of_a_chain_below_a_path(data: st.DataObject) -> None:
    """Against a walk by hand: tokens and laws behind the emitted ones, if the chain says these."""
    window, grown = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 4))
    size, batch = window + grown, data.draw(st.integers(1, 3))
    nodes = data.draw(st.one_of(st.none(), st.integers(0, size)))
    tokens = torch.tensor(
        [[data.draw(st.integers(0, 1)) for _ in range(size)] for _ in range(batch)]
    )
    live = torch.ones(batch, size, dtype=torch.bool)
    parents, depths = torch.arange(size).repeat(batch, 1) - 1, torch.ones(batch, size).long()
    emitted = []
    for row in range(batch):
        held = data.draw(st.integers(0, window))
        live[row, held:window] = False
        parents[row, window] = held - 1
        for node in range(size):
            above = int(parents[row, node])
            depths[row, node] = 1 if above < 0 else int(depths[row, above]) + 1
        chain = tokens[row][live[row]].tolist()
        kept = data.draw(st.integers(0, len(chain)))
        emitted.append([*chain[:kept], *data.draw(st.lists(st.integers(0, 1), max_size=2))])
    laws = torch.rand(batch, size, 2)
    tree = Tree(
        tokens, parents, depths, live, laws, tuple(range(size)), levels=size, branches=False
    )
    counts = torch.tensor([len(path) for path in emitted])
    filled = torch.tensor([[*path, *[1] * (6 + window - len(path))] for path in emitted])
    left = reroot(tree, filled, counts, nodes)
    assert left.size == (size if nodes is None else nodes) and left.is_chain
    stored = filled_to(left, reroot(tree, filled, counts * 0))
    for row, path in enumerate(emitted):
        chain, drawn = tokens[row][live[row]].tolist(), laws[row][live[row]]
        same = chain[: len(path)] == path
        rest = chain[len(path) : len(path) + left.size] if same else []
        for found in (left, stored):
            assert live_mask(found)[row].tolist() == [
                place < len(rest) for place in range(found.size)
            ]
            assert found.tokens[row, : len(rest)].tolist() == rest
            assert found.laws is not None and isinstance(found.law_index, tuple)
            for place in range(len(rest)):
                told = found.laws[row, found.law_index[place]]
                assert torch.equal(told, drawn[len(path) + place])
