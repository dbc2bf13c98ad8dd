"""A model drafts for a view of the target's cache, in several trips, and that for the target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.ir.capabilities import refusals
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.planner.methods.triforce import METHOD, TriForceOptions
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined
from tests.backends.pairs import in_batches, load_pair, plain, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.planner.example_facts import example_facts


def hierarchy(folder: Path, length: int, trips: int, budget: int, temperature: float) -> Plan:
    """A plan whose caches keep `budget` tokens, in chunks of 4."""
    facts = example_facts(folder, temperature=temperature)
    written = METHOD.plan(facts, TriForceOptions("draft", length, trips, 128))
    text = print_plan(written).replace("chunk=8", "chunk=4").replace("sink=16", "sink=2")
    for stated in (128, 256):
        assert f"budget={stated}" in text
        text = text.replace(f"budget={stated}", f"budget={budget}")
    plan = parse_plan(text)
    return replace(plan, models=tuple(replace(model, digest=None) for model in plan.models))


@pytest.mark.parametrize(("length", "trips"), [(1, 3), (2, 2)])
def test_small_caches_change_nothing_of_the_output(length: int, trips: int, tmp_path: Path) -> None:
    """A plan that draws runs greedy requests too, in ragged batches and alone."""
    save_pair(tmp_path, scale=0.14, sureness=6.0)
    models = load_pair(tmp_path)
    requests = [
        Request(
            prompt_tokens=tuple((i * 7 + p * p * (i % 3 + 1)) % 61 for p in range(2 + i * 9)),
            max_new_tokens=9 + i,
            temperature=0.8 * (i % 2),
            stop_tokens=(7,) if i % 4 == 0 else (),
            seed=i,
        )
        for i in range(6)
    ]
    plan = hierarchy(tmp_path / "problem", length, trips, 12, 0.8)
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    expected = in_batches(plain(greedy=False), models, requests[::2], 3)
    alone = in_batches(plan, models, requests, 1)
    assert alone[::2] == expected
    assert in_batches(plan, models, requests, 4) == alone


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder, VOCABULARY, scale=0.3)
    return load_pair(folder)


def test_the_targets_law_is_kept_with_small_caches(
    pair: dict[str, CausalModel], tmp_path: Path
) -> None:
    plan = parse_plan(
        print_plan(hierarchy(tmp_path, 1, 2, 8, 0.8)).replace("chunk=4", "chunk=1")
        .replace("retrieved(chunk=1) budget=8", "retrieved(chunk=1) budget=2")
    )  # fmt: skip
    assert p_value(plan, pair, law_of_texts(pair["target"]), seeds=1500) > 1e-4


@pytest.mark.parametrize(("length", "trips"), [(3, 1), (1, 3), (2, 2)])
def test_drafters_with_the_targets_law_are_accepted_whole(
    length: int, trips: int, pair: dict[str, CausalModel], tmp_path: Path
) -> None:
    """The target drafts for itself, and caches hold everything: laws are equal in all judgements.

    They are read of tokens that were drawn in the first trip, and in later ones.
    """
    models = {"target": pair["target"], "draft": pair["target"]}
    plan = hierarchy(tmp_path, length, trips, 150, 0.8)
    each = trips * (length + 1) + 1
    for seed in range(4):
        request = Request(
            prompt_tokens=(1, 2, 3), max_new_tokens=3 * each, temperature=1.0, seed=seed
        )
        executable = EagerBackend().compile(plan, models)
        assert generate(executable, [request]).rounds == 3


def test_tips_that_no_pass_of_their_own_runs_are_drafted_below_as_is_defined(
    pair: dict[str, CausalModel], tmp_path: Path
) -> None:
    text = print_plan(hierarchy(tmp_path, 2, 2, 12, 0.8))
    unrun = "\n".join(line for line in text.split("\n") if "%last" not in line)
    assert unrun != text
    requests = [
        Request(prompt_tokens=(1, 2, 3)[:size], max_new_tokens=9, temperature=0.8, seed=size)
        for size in (1, 3)
    ]
    decodes_as_defined(unrun, pair, requests)
    raced = parse_plan(text.replace("how=draw", "how=shared"))
    assert "how=shared needs by= with 5 uniforms" in "\n".join(map(str, verify_plan(raced)))
