"""A target with look-ahead tokens: what it shares with the bare one, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.heads.looking_ahead import looking_ahead
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
