"""A target with look-ahead tokens: what it shares with the bare one, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.heads.looking_ahead import looking_ahead
from specplan.runtime.models.heads.unrolled import unrolled
from specplan.runtime.models.loading import load_model
from tests.backends.pairs import save_pair
from tests.runtime.heads import formats


def test_a_target_looks_as_far_ahead_as_it_has_embeddings(tmp_path: Path) -> None:
    save_pair(tmp_path, formats.VOCABULARY)
    target = load_model(tmp_path / "target", dtype="float64")
    head = load_head(formats.look_ahead_tokens(2).save(tmp_path / "slots"), target)
    models: dict[str, Any] = {"target": target, "slots": head, "other": head}
    assert looking_ahead(models, ["target", "draft"])["target"] is target
    ahead: CausalModel = looking_ahead(models, ["target", "slots"])["target"]
    assert ahead.by_slots and not target.by_slots and ahead.family is target.family
    assert ahead.weights().keys() - target.weights().keys() == {"slots"}
    states = torch.zeros(2, 3, 32, dtype=torch.float64)
    assert torch.equal(ahead.enter_slots(states, 2)[1, 2], head.entering.slots[1])
    with pytest.raises(MissingCapabilityError, match="tokens are 2, and the plan looks 3 ahead"):
        ahead.enter_slots(states, 3)
    with pytest.raises(UsageError, match="one set of embeddings, and slots and other each"):
        looking_ahead(models, ["target", "slots", "other"])


def test_a_table_of_positions_has_no_part_for_slots(tmp_path: Path) -> None:
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64}
    stock = GPT2LMHeadModel(GPT2Config(vocab_size=formats.VOCABULARY, **sizes))
    stock.save_pretrained(tmp_path / "target")
    target = load_model(tmp_path / "target")
    head = load_head(formats.look_ahead_tokens().save(tmp_path / "slots"), target)
    with pytest.raises(MissingCapabilityError, match="targets with learned positions do not run"):
        looking_ahead({"target": target, "slots": head}, ["target", "slots"])


def test_a_state_is_transferred_in_the_middle_of_the_stack(tmp_path: Path) -> None:
    """Hidden transfer, arXiv 2404.12022 section 3: layers of `transformers`, one after another."""
    save_pair(tmp_path, formats.VOCABULARY, layers=4)
    target = load_model(tmp_path / "target", dtype="float64")
    stored = formats.hidden_transfer()
    head = load_head(stored.save(tmp_path / "slots"), target)
    text, node = torch.tensor([[3, 14, 15, 9, 26, 5]]), 4
    by_step = [*unrolled(head, text, torch.zeros(1, 6, 32).double(), 3)]
    stock = LlamaForCausalLM.from_pretrained(tmp_path / "target", dtype=torch.float64)
    inner, maps = stock.model, stored.tensors["slots.weight"]
    with torch.no_grad():
        states = inner.embed_tokens(text[:, : node + 1])
        for number, layer in enumerate(inner.layers):
            if number == 2:
                states = torch.cat([states, *(states[:, node:] @ one.T for one in maps)], 1)
            length = states.shape[1]
            angles = inner.rotary_emb(states, position_ids=torch.arange(length)[None])
            mask = torch.full((1, 1, length, length), -torch.inf).double().triu(1)
            states = layer(states, attention_mask=mask, position_embeddings=angles)
        wanted = stock.lm_head(inner.norm(states))[0, node + 1 :]
    for step in range(3):
        torch.testing.assert_close(by_step[step][0, node + 1], wanted[step], rtol=0, atol=2e-5)
