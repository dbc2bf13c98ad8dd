"""The shipped heads: served as their cards say, and decoding with them changes no token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specplan import api
from specplan.measure.device.probes import plain_plan
from specplan.measure.workbench import BENCH, Workbench
from specplan.problems import as_problem
from specplan.runtime.generate import generate

FOLDER = Path(__file__).resolve().parents[2] / "examples"
HEADS = sorted(one.parent for one in FOLDER.glob("reference_models/heads/*/config.json"))


def test_heads_are_shipped_with_their_training() -> None:
    assert {head.name for head in HEADS} == {"eagle", "eagle3", "medusa"}
    for head in HEADS:
        recipe = json.loads((head / "training.json").read_text())["recipe"]
        assert {"seed", "loss", "learning_rate"} <= set(recipe)
        assert "held-out prompts" in (head / "README.md").read_text()


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_a_head_is_served_as_its_profile_says(head: Path) -> None:
    """Greedy code: the tokens of plain decoding, in as many steps as planned beforehand."""
    workload = {
        "batch_sizes": [1], "prompt_tokens": 150, "output_tokens": 48, "task": "code",
        "prompts": str(FOLDER / "prompts/code.jsonl"),
    }  # fmt: skip
    path = FOLDER / "reference_models/target"
    problem = {
        "schema_version": 1,
        "models": {
            "target": {"path": str(path), "dtype": "float32"},
            "drafts": [{"name": head.name, "path": str(head)}],
        },
        "device": "cpu-generic",
        "backend": "eager",
        "sources": [],
        "workload": workload,
        "acceptance": {head.name: str(head / "acceptance.json")},
    }
    searched = api.optimize(problem).search
    stated = json.loads((head / "config.json").read_text())["torch_dtype"]
    assert (stated, searched.facts.drafters[head.name].shape.dtype) == ("bfloat16", "float32")
    chosen = searched.chosen
    assert chosen.plan is not None and head.name in chosen.plan.models_run
    bench = Workbench(as_problem(problem))
    requests = [bench.request(one, seed=0) for one in bench.prompts(BENCH)[:6]]
    made = generate(bench.compile(chosen.plan), requests)
    expected = generate(bench.compile(plain_plan(True)), requests)
    assert [one.tokens for one in made.completions] == [one.tokens for one in expected.completions]
    planned = chosen.estimates[0].tokens_per_round
    assert 0.75 * planned.mean < made.tokens_per_round < 1.33 * planned.mean
