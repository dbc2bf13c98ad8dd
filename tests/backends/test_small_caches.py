"""Caches that keep the first tokens of a text and the latest ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.ir.capabilities import refusals
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, load_pair, plainly, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value

CHAIN = """plan small
model target
{model}state @kv = cache target
{state}
round decode {{
  %t0 = root
  %c = repeat {length} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward {forward}
{draw}    %n = grow %t at=%f logits=%q{how}
    yield %n
  }}
  %l = forward target %c cache=@kv pending=1
{judge}  %e = emit %a
  commit @kv %e
  {end}
}}
"""


def small_plan(own: bool, retention: str, length: int = 3, greedy: bool = True) -> Plan:
    """The target drafts through a view of its cache, or a draft model with a cache like that."""
    sampled = (
        f"  %v = uniform {length + 1} stream=accept\n  %a = accept %c target=%l rule=token by=%v\n"
    )
    return parse_plan(
        CHAIN.format(
            length=length,
            model="" if own else "model draft\n",
            state=f"state @part = cache target view=@kv {retention}"
            if own
            else f"state @part = cache draft {retention}",
            forward="target %f cache=@part pending=1 write=scratch"
            if own
            else "draft %f cache=@part pending=2",
            draw="" if greedy else "    %u = uniform 1 stream=draft\n",
            how="" if greedy else " how=draw by=%u",
            judge="  %a = accept %c target=%l\n" if greedy else sampled,
            end="refresh @part" if own else "commit @part %e",
        )
    )


def retention(budget: int, sink: int = 2) -> str:
    return f"policy=sink_recent(sink={sink}) budget={budget}"


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * 7 + p * p * (i % 3 + 1)) % 61 for p in range(2 + i * 9)),
            max_new_tokens=20 + i,
            seed=i,
            stop_tokens=(7,) if i % 3 == 0 else (),
        )
        for i in range(7)
    ]


@pytest.mark.parametrize("budget", [3, 11])
@pytest.mark.parametrize("own", [True, False])
def test_output_is_that_of_plain_decoding(
    own: bool, budget: int, pair_folder: Path, requests: list[Request]
) -> None:
    models, plan = load_pair(pair_folder), small_plan(own, retention(budget))
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    expected = plainly(models, requests)
    assert in_batches(plan, models, requests[-2:], 1) == expected[-2:]
    assert in_batches(plan, models, requests, 4) == expected


def test_views_that_a_schedule_has_left_behind_catch_up_in_small_steps(
    pair_folder: Path, requests: list[Request]
) -> None:
    """However much text a pass may take: a view has room for few tokens beyond its budget."""
    text = print_plan(small_plan(True, retention(8))).replace("pending=1 write", "pending=9 write")
    text = text.replace("  refresh @part\n", "")
    name = text[text.index("round ") :].split()[1]
    text += """round plain {
  %t = root
  %l = forward target %t cache=@kv pending=1
  %a = accept %t target=%l
  %e = emit %a
  commit @kv %e
}
"""
    guards = f'  when "emitted < 4" {name}\n  when "emitted < 14" plain\n  otherwise {name}\n'
    plan = parse_plan(f"{text}schedule {{\n{guards}}}\n")
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    models = load_pair(pair_folder)
    assert in_batches(plan, models, requests, 4) == plainly(models, requests)


@pytest.mark.parametrize("own", [True, False])
def test_draws_depend_on_the_seed_alone(own: bool, pair_folder: Path) -> None:
    """What a request drafts with few cached tokens does not depend on its batch mates."""
    models, plan = load_pair(pair_folder), small_plan(own, retention(7), greedy=False)
    hot = [
        Request(
            prompt_tokens=tuple((i + p * p) % 61 for p in range(3 + i * 11)),
            max_new_tokens=18,
            temperature=0.9,
            seed=i,
        )
        for i in range(5)
    ]
    assert in_batches(plan, models, hot, 5)[-2:] == in_batches(plan, models, hot[-2:], 1)


def test_a_budget_for_all_text_drafts_as_whole_caches_do(
    pair_folder: Path, requests: list[Request]
) -> None:
    models = load_pair(pair_folder)
    long = [request for request in requests if not request.stop_tokens]
    whole = parse_plan(
        CHAIN.format(
            length=3, model="model draft\n", state="state @part = cache draft", draw="", how="",
            forward="draft %f cache=@part pending=2", judge="  %a = accept %c target=%l\n",
            end="commit @part %e",
        )
    )  # fmt: skip
    for request in long:
        own = generate(EagerBackend().compile(small_plan(True, retention(200)), models), [request])
        assert own.rounds == -(-request.max_new_tokens // 4), "the target agrees with itself"
        rounds = [
            generate(EagerBackend().compile(plan, models), [request]).rounds
            for plan in (whole, small_plan(False, retention(200)), small_plan(False, retention(3)))
        ]
        assert rounds[0] == rounds[1] <= rounds[2] + 2


@pytest.mark.parametrize("own", [True, False])
def test_it_holds_and_reads_no_more_than_its_budget(own: bool, pair_folder: Path) -> None:
    models, plan = load_pair(pair_folder), small_plan(own, retention(9))
    request = Request(prompt_tokens=tuple(p * p % 61 for p in range(70)), max_new_tokens=20)
    session = EagerBackend().compile(plan, models).start([request])
    seen: list[int] = []
    session.prefill()
    cache = session.batch.caches["part"]
    while not session.done[0]:
        session.step("decode", lambda op, model, b, width, context, s: seen.append(context))
        stored = cache.whole[0] - cache.forgotten[0]
        assert stored == 9
        positions = cache.store.positions[0, :9].tolist()
        assert positions == [0, 1, *range(cache.whole[0] - 7, cache.whole[0])]
    assert cache.store.capacity <= 9 + 9 + 5 < 90
    reads = {context for context in seen if context}
    assert min(reads) <= 9 + 4 < 70 <= max(reads)


@pytest.fixture(scope="module")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("small_pair")
    save_pair(folder, VOCABULARY, scale=0.15)
    return load_pair(folder)


@pytest.mark.parametrize("own", [True, False])
def test_the_targets_law_is_kept(own: bool, small_pair: dict[str, CausalModel]) -> None:
    exact: np.ndarray = law_of_texts(small_pair["target"])
    plan = small_plan(own, retention(3, sink=1), length=2, greedy=False)
    assert p_value(plan, small_pair, exact, seeds=1500) > 1e-4


REFUSED = {
    "another policy": ("policy=sink_recent(sink=2)", "policy=pyramid", "retrieved, sink_recent"),
    "no budget": (" budget=9", "", "says its budget"),
}


@pytest.mark.parametrize(("old", "new", "reason"), REFUSED.values(), ids=REFUSED)
def test_other_small_caches_are_refused(old: str, new: str, reason: str) -> None:
    text = print_plan(small_plan(False, retention(9)))
    assert old in text
    refused = refusals(parse_plan(text.replace(old, new)), CAPABILITIES)
    assert any(reason in str(refusal) for refusal in refused), refused
