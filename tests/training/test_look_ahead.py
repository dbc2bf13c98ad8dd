"""Look-ahead tokens: the target stays as it is, and drafts by what it reads ahead of its text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.cost_models.models.heads.look_ahead import look_ahead_config
from specplan.planner.methods.trained_slots import METHOD, TwoPassOptions
from specplan.planner.templates.head_drafts import HeadTreeOptions
from specplan.planner.trees import chain
from specplan.runtime.generate import generate
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.training.learning.packing import Text
from specplan.training.recipe import Recipe
from specplan.training.trainer import train_head
from tests.backends.pairs import in_batches, plain, save_pair
from tests.planner.example_facts import example_facts

VOCABULARY, NEW, STEPS = 61, 8, 150
RECIPE = Recipe(rows=1, learning_rate=0.05, warmup=2, unroll=2, clip=10.0)


@pytest.mark.parametrize("layer", [0, 1])
def test_one_text_is_learned_and_its_drafts_are_accepted_throughout(
    layer: int, tmp_path: Path
) -> None:
    save_pair(tmp_path, VOCABULARY, scale=0.14, sureness=6.0)
    target = load_model(tmp_path / "target", dtype="float64")
    weights = {name: one.clone() for name, one in target.weights().items()}
    request = Request(prompt_tokens=(3, 1, 4, 1, 5, 9, 2, 6), max_new_tokens=NEW, temperature=0.0)
    (written,) = in_batches(plain(), {"target": target}, [request], 1)
    texts = [Text((*request.prompt_tokens, *written), len(request.prompt_tokens))]
    sizes = json.loads((tmp_path / "target/config.json").read_text())
    config = {**look_ahead_config(sizes, "target", tokens=2), "transfer_layer": layer}

    whole, parts = tmp_path / "slots", tmp_path / "parts"
    train_head(config, target, texts, STEPS, whole, RECIPE)
    train_head(config, target, texts, STEPS, parts, RECIPE, until=STEPS // 2)
    train_head(config, target, texts, STEPS, parts, RECIPE)
    for name in ("model.safetensors", "optimizer.state", "training.json"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes(), name
    assert {k: v.shape for k, v in load_file(whole / "model.safetensors").items()} == {
        "slots.weight": torch.Size([2, *[target.hidden_size] * (1 + bool(layer))])
    }
    assert all(torch.equal(one, weights[name]) for name, one in target.weights().items())

    models = {"target": target, "slots": load_head(whole, target)}
    facts = example_facts(
        tmp_path, target=sizes, methods=["autoregressive", "trained_slots"],
        models={"target": {"path": "target"}, "drafts": [{"name": "slots", "path": "slots"}]},
    )  # fmt: skip
    two, three = chain(2), chain(3)
    fused = METHOD.plan(facts, HeadTreeOptions("slots", two.parents, two.ranks))
    before = METHOD.plan(facts, TwoPassOptions("slots", three.parents, three.ranks))
    # the first round reads the prompt; a pass of its own drafts in that already, one token more
    for plan, rounds in ((fused, 1 + -(-(NEW - 1) // 3)), (before, NEW // 4)):
        for backend in (EagerBackend(), OracleBackend()):
            done = generate(backend.compile(plan, models), [request])
            assert done.completions[0].tokens == written
            assert done.completions[0].rounds == rounds
