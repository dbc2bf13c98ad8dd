"""The shipped checkpoints are ordinary folders that stock transformers loads and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

NAMES = ("target", "draft")
LIMIT = 48 * 2**20
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "reference_models"
TOKENIZER = Tokenizer.from_file(str(FOLDER / "target" / "tokenizer.json"))


@pytest.fixture(scope="module")
def loaded(models: Path) -> dict[str, Any]:
    return {n: AutoModelForCausalLM.from_pretrained(models / n).eval() for n in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_generates(models: Path, loaded: dict[str, Any], name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(models / name)
    batch = tokenizer("def read(self, size=-1):\n", return_tensors="pt")
    out = loaded[name].generate(**batch, max_new_tokens=12, do_sample=False)
    assert out.shape[1] <= batch["input_ids"].shape[1] + 12
    assert out[0, : batch["input_ids"].shape[1]].equal(batch["input_ids"][0])
    assert loaded[name].dtype == torch.bfloat16
    assert tokenizer.eos_token_id == loaded[name].config.eos_token_id == 0


def test_the_draft_assists_the_target_with_the_same_words(
    models: Path, loaded: dict[str, Any]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(models / "target")
    batch = tokenizer("class Error(Exception):\n", return_tensors="pt")
    target = AutoModelForCausalLM.from_pretrained(models / "target", dtype=torch.float32)
    draft = AutoModelForCausalLM.from_pretrained(models / "draft", dtype=torch.float32)
    plain = target.generate(**batch, max_new_tokens=24, do_sample=False)
    helped = target.generate(**batch, max_new_tokens=24, do_sample=False, assistant_model=draft)
    assert plain.equal(helped)


def test_all_weights_fit_the_limit(models: Path) -> None:
    assert sum(p.stat().st_size for p in models.rglob("*.safetensors")) <= LIMIT
    assert not [p for p in models.rglob("*") if p.suffix in {".pt", ".pth", ".bin", ".pkl"}]


def test_a_draft_step_costs_at_most_a_fifth_by_weights(loaded: dict[str, Any]) -> None:
    counts = {n: sum(p.numel() for p in m.parameters()) for n, m in loaded.items()}
    assert counts["draft"] * 5 <= counts["target"]
    assert loaded["draft"].config.num_hidden_layers * 5 <= loaded["target"].config.num_hidden_layers


def test_both_folders_share_one_tokenizer(models: Path) -> None:
    first, second = ((models / n / "tokenizer.json").read_bytes() for n in NAMES)
    assert first == second
    vocab = json.loads((models / "target" / "config.json").read_text())["vocab_size"]
    assert TOKENIZER.get_vocab_size() == vocab


@given(st.text(max_size=200))
def test_the_tokenizer_round_trips_any_text(text: str) -> None:
    ids = TOKENIZER.encode(text.replace("<|endoftext|>", "")).ids
    assert TOKENIZER.decode(ids) == text.replace("<|endoftext|>", "")


def test_encoding_adds_no_special_token(models: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(models / "draft")
    assert 0 not in tokenizer("def f(x):").input_ids
    assert tokenizer("").input_ids == []


@torch.no_grad()
def test_the_training_forward_is_the_stock_forward(models: Path) -> None:
    from recipe import nets, stages, weights

    for name, shape in (("target", stages.TARGET), ("draft", stages.DRAFT)):
        masters = weights.from_hf_state(
            load_file(models / name / "model.safetensors"), shape.layers
        )
        leaves = {n: t.float() for n, t in weights.make_leaves(masters, shape.layers).items()}
        ids = torch.randint(1, shape.vocab, (2, 150), generator=torch.Generator().manual_seed(0))
        hidden = nets.norm(nets.forward(ids, leaves, shape)[-1], leaves["norm"])
        stock = AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32)
        torch.testing.assert_close(
            hidden @ leaves["embed"].t(), stock(ids).logits, rtol=1e-3, atol=1e-3
        )
        assert sum(p.numel() for p in stock.parameters()) == shape.parameters()
