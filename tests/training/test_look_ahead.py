"""Look-ahead tokens: the target stays as it is, and drafts by what it reads ahead of its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.cost_models.models.heads.look_ahead import look_ahead_config, streams_config
from specplan.ir.plan import Plan
from specplan.measure.acceptance.heads import head_ranks
from specplan.measure.acceptance.teacher import TracedText
from specplan.planner.facts import ProblemFacts
from specplan.planner.methods.pruned_heads import METHOD as PRUNED
from specplan.planner.methods.pruned_heads import PrunedOptions
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
from tests.matrix import LONG
from tests.planner.example_facts import example_facts

VOCABULARY, NEW, STEPS = 61, 8, 150
RECIPE = Recipe(rows=1, learning_rate=0.05, warmup=2, unroll=2, clip=10.0)


STREAMS = {"transfer_layer": 1, "stream_rank": 4, "adapter_rank": 2}


@pytest.mark.parametrize("more", [{"soft_prompt_tokens": 3}, {"transfer_layer": 1}, STREAMS])
def test_one_text_is_learned_and_its_drafts_are_accepted_throughout(
    more: dict[str, Any], tmp_path: Path
) -> None:
    """By embeddings beside a soft prompt, by maps of a layer's state, by streams with adapters."""
    learned = learn(tmp_path, more)
    two, three = chain(2), chain(3)
    fused = METHOD.plan(learned.facts, HeadTreeOptions("slots", two.parents, two.ranks))
    before = METHOD.plan(learned.facts, TwoPassOptions("slots", three.parents, three.ranks))
    # the first round reads the prompt; a pass of its own drafts in that already, one token more
    steps = 1 + -(-(NEW - 1) // 3)
    for plan, rounds in ((fused, steps), (before, NEW // 4)):
        learned.check(plan, rounds)
    if (
        "transfer_layer" in more
    ):  # two tokens of each stream, cut down to what the first layer finds likely
        few, all_of_them = (PrunedOptions("slots", 1, 2, 2, nodes) for nodes in (3, 6))
        learned.check(PRUNED.plan(learned.facts, few), None)
        learned.check(PRUNED.plan(learned.facts, all_of_them), steps)


def test_a_pass_without_the_middle_layers_drafts_what_it_learned(tmp_path: Path) -> None:
    """S3D (arXiv 2405.20314): the root's own token is learned by nothing, and may be wrong."""
    learned = learn(tmp_path, {"skipped_layers": [1]})
    assert learned.facts.drafters["slots"].block == 3
    three = chain(3)
    plan = METHOD.plan(learned.facts, HeadTreeOptions("slots", three.parents, three.ranks))
    target, head = learned.models["target"], learned.models["slots"]
    traced = TracedText(0, "text", learned.request, learned.written, target)
    ranks = head_ranks([head], traced, 3, 1)
    place = rounds = 0
    while place < NEW:
        accepted = next((n for n in range(3) if place + n >= NEW or ranks[place + n][n]), 3)
        place, rounds = place + accepted + 1, rounds + 1
    assert rounds < NEW
    learned.check(plan, rounds)


class Learned(NamedTuple):
    """A target, look-ahead tokens that know one of its texts by heart, and facts with both."""

    models: dict[str, Any]
    facts: ProblemFacts
    request: Request
    written: tuple[int, ...]

    def check(self, plan: Plan, rounds: int | None) -> None:
        """The text, in so many rounds, or in as many by each backend."""
        for compiled in (EagerBackend().compile, OracleBackend().compile, StaticExecutable):
            done = generate(compiled(plan, self.models), [self.request])
            assert done.completions[0].tokens == self.written
            rounds = rounds or done.completions[0].rounds
            assert done.completions[0].rounds == rounds


def learn(folder: Path, more: dict[str, Any]) -> Learned:
    """Train two look-ahead tokens; streams in parts too, bit by bit as in one go."""
    save_pair(folder, VOCABULARY, scale=0.14, sureness=6.0)
    target = load_model(folder / "target", dtype="float64")
    weights = {name: one.clone() for name, one in target.weights().items()}
    request = Request(prompt_tokens=(3, 1, 4, 1, 5, 9, 2, 6), max_new_tokens=NEW, temperature=0.0)
    (written,) = in_batches(plain(), {"target": target}, [request], 1)
    texts = [Text((*request.prompt_tokens, *written), len(request.prompt_tokens))]
    sizes = json.loads((folder / "target/config.json").read_text())
    config = {**streams_config(sizes, "target"), **look_ahead_config(sizes, "target", tokens=2)}
    left_out = {"transfer_layer", "stream_rank", "adapter_rank"} - more.keys()
    config = {key: value for key, value in (config | more).items() if key not in left_out}

    whole, parts = folder / "slots", folder / "parts"
    train_head(config, target, texts, STEPS, whole, RECIPE)
    if LONG or more is STREAMS:  # which have all kinds of tensors
        train_head(config, target, texts, STEPS, parts, RECIPE, until=STEPS // 2)
        train_head(config, target, texts, STEPS, parts, RECIPE)
        for name in ("model.safetensors", "optimizer.state", "training.json"):
            assert (whole / name).read_bytes() == (parts / name).read_bytes(), name
    stored = load_file(whole / "model.safetensors")
    maps = "transfer_layer" in more and "stream_rank" not in more
    assert stored["slots.weight"].shape == (2, *[target.hidden_size] * (1 + maps))
    assert (len(stored) == 7) == ("stream_rank" in more)
    assert all(one.any() for one in stored.values())
    assert all(torch.equal(one, weights[name]) for name, one in target.weights().items())

    models = {"target": target, "slots": load_head(whole, target)}
    facts = example_facts(
        folder, target=sizes, methods=["autoregressive", "trained_slots"],
        models={"target": {"path": "target"}, "drafts": [{"name": "slots", "path": "slots"}]},
    )  # fmt: skip
    return Learned(models, facts, request, written)
