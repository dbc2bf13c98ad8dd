"""Text that runs compiled into caches: prompts of models, and what heads leave of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend
from specplan.backends.onnxruntime.prompts import PromptProgram, fits
from specplan.ir.text.parser import parse_plan
from specplan.measure.acceptance.teacher import text_states
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.loading import load_head
from tests.backends.compiled_plans import TREE, requests_of
from tests.backends.pairs import load_pair, save_pair
from tests.runtime.heads import formats

WIDE = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16)
"""Attention heads that the runtime's op can turn, with as many weights as those of `formats`."""
STATES: dict[str, Any] = dict(reads=2, eagle_aux_hidden_state_layer_ids=[0, 1])
"""Those that EAGLE-3 reads of a target with two layers."""


@pytest.fixture
def models(tmp_path: Path) -> dict[str, CausalModel]:
    save_pair(tmp_path, layers=2, head_dim=16)
    return load_pair(tmp_path, dtype="float32")


def test_prompts_run_compiled_into_the_caches_of_the_interpreter(
    models: dict[str, CausalModel], tmp_path: Path
) -> None:
    """At batch 1; in chunks, which continue where the one before ended."""
    plan = parse_plan(TREE)
    request = requests_of()[2]
    executable = OnnxRuntimeBackend().compile(plan, models)
    sessions = [EagerBackend().compile(plan, models).start([request]), executable.start([request])]
    for session in sessions:
        session.prefill()
    one, other = (session.batch.caches for session in sessions)
    for name in ("kv", "dkv"):
        assert one[name].lengths == other[name].lengths == {(0, 2 - (name == "dkv")): [20]}
        pairs = [(one[name].store.keys, other[name].store.keys)]
        pairs.append((one[name].store.values, other[name].store.values))
        for mine, theirs in pairs:
            for a, b in zip(mine, theirs, strict=True):
                torch.testing.assert_close(a[:, :, :20], b[:, :, :20], rtol=1e-4, atol=1e-5)
    program = executable.text_program("target", other["kv"].store.capacity + 1)
    assert program is not None and program is executable.text_program(
        "target", other["kv"].store.capacity + 1
    )
    again = models["target"].new_cache(1, other["kv"].store.capacity)
    tokens = torch.tensor([request.prompt_tokens[:-1]])
    program(tokens[:, :7], 0, again)
    program(tokens[:, 7:], 7, again)
    torch.testing.assert_close(again.keys, other["kv"].store.keys, rtol=1e-4, atol=1e-5)
    unshared = PromptProgram(models["target"], other["kv"].store.capacity + 1)
    by_itself = models["target"].new_cache(1, other["kv"].store.capacity)
    unshared(tokens, 0, by_itself)
    torch.testing.assert_close(by_itself.keys, again.keys, rtol=1e-4, atol=1e-5)
    keeping = executable.text_program("target", other["kv"].store.capacity + 1, ((2,), (0, 1)))
    assert keeping is not None
    last, joined = torch.empty(len(tokens[0]), 32), torch.empty(len(tokens[0]), 64)
    cache = models["target"].new_cache(1, other["kv"].store.capacity)
    keeping(tokens, 0, cache, states=(last, joined))
    assert joined[:, :32].equal(models["target"].family.embed(tokens, tokens)[0])
    for layer, states in ((1, joined[:, 32:]), (2, last)):
        expected = text_states(models["target"], request.prompt_tokens, 1, layer)
        torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-4)
    double = load_pair(tmp_path)
    assert OnnxRuntimeBackend().compile(plan, double).text_program("target", 300) is None


@pytest.mark.parametrize(
    "make",
    [
        formats.eagle1,
        lambda: formats.eagle3(**STATES),
        lambda: formats.eagle3(norm_before_fc=True, embedding=True, **STATES),
        lambda: formats.eagle3(fc_norm=True, **STATES),
    ],
    ids=["EAGLE-1", "EAGLE-3", "one norm on all states", "a norm on each state"],
)
def test_a_head_leaves_the_keys_and_values_of_its_definition(
    make: Callable[..., formats.Stored], models: dict[str, CausalModel], tmp_path: Path
) -> None:
    stored = make()
    stored.config.update(WIDE)
    head = load_head(stored.save(tmp_path / "head"), models["target"])
    head.pack()
    assert fits("head", head)
    reads = head.description.reads
    tokens, features = torch.arange(9)[None] * 5 % 61, torch.randn(9, reads.count * reads.width)
    own, expected = head.new_cache(1, 12), head.new_cache(1, 12)
    filled(head, tokens, features, expected)
    program = PromptProgram(head, 13)
    program(tokens[:, :4], 0, own, features[:4])
    program(tokens[:, 4:], 4, own, features[4:])
    for mine, theirs in ((own.keys, expected.keys), (own.values, expected.values)):
        torch.testing.assert_close(mine[0][:, :, :9], theirs[0][:, :, :9], rtol=1e-4, atol=1e-5)
    assert own.positions[:, :9].equal(expected.positions[:, :9])


def filled(head: Drafter, tokens: Any, features: Any, cache: Any) -> None:
    """By the head itself, as the interpreter runs it."""
    places = torch.arange(tokens.shape[1])[None]
    there, steps = torch.ones_like(places), torch.zeros_like(places)
    entered = head.enter(tokens, places, features[None], there, steps)
    head.fill(entered, places, places, cache)


def test_heads_of_other_makes_are_left_to_the_interpreter(
    models: dict[str, CausalModel], tmp_path: Path
) -> None:
    """Two layers leave what the first one computes; Medusa has no text."""
    made = {"deep": formats.eagle3(layers=2, **STATES), "medusa": formats.medusa()}
    for name, stored in made.items():
        head = load_head(stored.save(tmp_path / name), models["target"])
        head.pack()
        assert not fits(name, head)
