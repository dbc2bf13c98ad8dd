"""Greedy output of every plan kind is that of plain decoding, token by token, in float64."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from specplan.backends.reference.backend import ReferenceBackend
from specplan.planner.scheduling import scheduled
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.kinds import every_kind, further_kinds, source_kinds
from tests.backends.pairs import in_batches, load_pair, plain

NEW_TOKENS = 20


@pytest.fixture(scope="module")
def requests(held_out: list[str]) -> list[Request]:
    """Held-out texts of 3 to 60 bytes, folded onto a vocabulary of 61."""
    found = []
    for index, text in enumerate(held_out):
        size = 3 + index * 7 % 58
        tokens = tuple(byte % 61 for byte in text.encode()[:size])
        found.append(
            Request(
                prompt_tokens=tokens,
                max_new_tokens=1 + (index * 5) % NEW_TOKENS + NEW_TOKENS // 2,
                stop_tokens=(7,) if index % 3 == 0 else (),
                seed=index,
            )
        )
    return found


def test_every_kind_on_100_prompts_at_batch_1_and_4(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    """All prompts four at a time, and every fourth one alone."""
    models = load_pair(pair_folder)
    expected = in_batches(plain(), models, requests, 1)
    assert in_batches(plain(), models, requests, 4) == expected
    kinds = dict(every_kind(tmp_path, 0.0, 1))
    assert len(kinds) >= 4
    for name, plan in kinds.items():
        assert in_batches(plan, models, requests, 4) == expected, (name, 4)
        assert in_batches(plan, models, requests[::4], 1) == expected[::4], (name, 1)


def test_rounds_of_two_methods_take_turns(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    """States of the same name that differ are kept apart; what a round left is caught up with."""
    models, some = load_pair(pair_folder), requests[::20]
    expected = in_batches(plain(), models, some, 1)
    named = [*further_kinds(tmp_path, 0.0, 1), *source_kinds(tmp_path / "sources", 0.0, 1)]
    turns = (("emitted % 7 < 3", "r0"), ("", "r1"))
    apart = 0
    for (one, first), (other, second) in pairwise(named):
        plan = scheduled("turns", {"r0": first, "r1": second}, turns)
        apart += any(state.name.endswith("_r1") for state in plan.states)
        assert in_batches(plan, models, some, 2) == expected, (one, other)
    assert apart > 1


def test_further_methods(pair_folder: Path, requests: list[Request], tmp_path: Path) -> None:
    models, some = load_pair(pair_folder), requests[::14]
    expected = in_batches(plain(), models, some, 4)
    kinds = dict(further_kinds(tmp_path, 0.0, 2))
    assert kinds
    for name, plan in kinds.items():
        assert in_batches(plan, models, some, 4) == expected, name
    for name, plan in further_kinds(tmp_path / "sampled", 0.8, 1):
        assert in_batches(plan, models, some[::3], 3) == expected[::3], name


def test_every_method_that_drafts_from_a_source(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    """One executable for all requests, so that what they share fills up."""
    models, some = load_pair(pair_folder), requests[::6]
    expected = in_batches(plain(), models, some, 4)
    kinds = dict(source_kinds(tmp_path, 0.0, 1))
    assert len(kinds) >= 8
    for name, plan in kinds.items():
        executable = ReferenceBackend().compile(plan, models)
        for start in range(0, len(some), 4):
            found = generate(executable, some[start : start + 4]).completions
            assert [item.tokens for item in found] == expected[start : start + 4], name


def test_more_settings_of_every_kind(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    models = load_pair(pair_folder)
    some = requests[::10]
    expected = in_batches(plain(), models, some, 1)
    for name, plan in every_kind(tmp_path, 0.0, 4):
        assert in_batches(plan, models, some, 3) == expected, name


def test_sampling_plans_are_greedy_for_requests_of_temperature_0(
    pair_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    models = load_pair(pair_folder)
    some = requests[::12]
    expected = in_batches(plain(), models, some, 1)
    for name, plan in every_kind(tmp_path, 0.8, 2):
        assert in_batches(plan, models, some, 4) == expected, name


@pytest.mark.parametrize("family", ["mistral", "qwen2_windows", "qwen3", "gpt2", "opt"])
def test_other_architectures(
    family: str, requests: list[Request], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from specplan.runtime.models import load_model
    from tests.runtime.tiny_models import save_tiny

    folder = tmp_path_factory.mktemp(family)
    models = {
        "target": load_model(save_tiny(family, folder / "target"), dtype="float64"),
        "draft": load_model(save_tiny("llama", folder / "draft"), dtype="float64"),
    }
    some = requests[::20]
    expected = in_batches(plain(), models, some, 1)
    for name, plan in every_kind(tmp_path, 0.0, 1):
        assert in_batches(plan, models, some, 4) == expected, name
