"""Greedy output is that of plain decoding: other settings, other architectures, mixed rounds.

`test_every_plan.py` holds a plan of every kind to it, on 100 prompts, and among requests that are
sampled.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice, pairwise
from pathlib import Path

import pytest

from specplan.planner.templates.merged_rounds import scheduled, take_turns
from specplan.runtime.requests import Request
from tests.backends.heads import with_heads
from tests.backends.kinds import EVERY_WAY, LOSSLESS, all_facts, every_kind, kinds_of
from tests.backends.pairs import in_batches, load_pair, plainly
from tests.matrix import LONG

NEW_TOKENS = 20
VOCABULARY = 61


def prompts_of(held_out: list[str]) -> list[tuple[int, ...]]:
    """Held-out texts of 3 to 60 bytes, folded onto the vocabulary."""
    return [
        tuple(byte % VOCABULARY for byte in text.encode()[: 3 + index * 7 % 58])
        for index, text in enumerate(held_out)
    ]


@pytest.fixture(scope="module")
def requests(held_out: list[str]) -> list[Request]:
    return [
        Request(
            prompt_tokens=tokens,
            max_new_tokens=1 + (index * 5) % NEW_TOKENS + NEW_TOKENS // 2,
            stop_tokens=(7,) if index % 3 == 0 else (),
            seed=index,
        )
        for index, tokens in enumerate(prompts_of(held_out))
    ]


def test_rounds_of_two_methods_take_turns(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    """States of the same name that differ are kept apart; what a round left is caught up with.

    The first kind of each method; every kind in the long matrix.
    """
    models, some = with_heads(load_pair(pair_folder)), requests[::20]
    expected = plainly(models, some)
    most = None if LONG else 1
    facts = all_facts(tmp_path, 0.0)
    others = [method for name, method in LOSSLESS.items() if name not in EVERY_WAY]
    others.sort(key=lambda method: method.sources)  # those that declare a source side by side
    named = [*chain.from_iterable(islice(kinds_of(method, facts), most) for method in others)]
    (alone,) = kinds_of(LOSSLESS["autoregressive"], facts)
    able = [kind for kind in named if take_turns(kind.plan, alone.plan)]
    # these read hidden states that only their own rounds keep
    assert {kind.plan.name for kind in named if kind not in able} == {
        "nested_exits",
        "predictive_pipeline",
    }
    turns = (("emitted % 7 < 3", "r0"), ("", "r1"))
    with_renamed = 0
    for (one, first, _), (other, second, _) in pairwise(able):
        plan = scheduled("turns", {"r0": first, "r1": second}, turns)
        with_renamed += any(state.name.endswith("_r1") for state in plan.states)
        assert in_batches(plan, models, some, 3) == expected, (one, other)
    assert with_renamed > 1


@pytest.mark.long
def test_more_settings_of_every_kind(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    models = load_pair(pair_folder)
    some = requests[::20]
    expected = plainly(models, some)
    for name, plan in every_kind(tmp_path, 0.0, 4):
        assert in_batches(plan, models, some, 3) == expected, name


@pytest.mark.long
def test_sampling_plans_are_greedy_for_requests_of_temperature_0(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    models = load_pair(pair_folder)
    some = requests[::12]
    expected = plainly(models, some)
    for name, plan in every_kind(tmp_path, 0.8, 2):
        assert in_batches(plan, models, some, 4) == expected, name


@pytest.mark.parametrize("family", ["mistral", "qwen2_windows", "qwen3", "gpt2", "opt"])
def test_other_architectures(
    family: str, requests: list[Request], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from specplan.runtime.models.loading import load_model
    from tests.runtime.tiny_models import save_tiny

    folder = tmp_path_factory.mktemp(family)
    models = {
        "target": load_model(save_tiny(family, folder / "target"), dtype="float64"),
        "draft": load_model(save_tiny("llama", folder / "draft"), dtype="float64"),
    }
    some = [replace(one, max_new_tokens=1 + one.max_new_tokens // 2) for one in requests[::25]]
    expected = plainly(models, some)
    for name, plan in every_kind(tmp_path, 0.0, 1):
        assert in_batches(plan, models, some, 4) == expected, name
