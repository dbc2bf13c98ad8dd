"""A target with look-ahead tokens: what it shares with the bare one, and what it refuses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
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


@pytest.mark.parametrize("kind", ["hidden transfer", "streams", "streams without adapters"])
def test_a_state_is_transferred_in_the_middle_of_the_stack(kind: str, tmp_path: Path) -> None:
    """Hidden transfer, arXiv 2404.12022 section 3: layers of `transformers`, one after another.

    Speculative Streaming, arXiv 2402.11131 section 3: stream j begins as f(M) + P_j, f a map of low
    rank, and runs with adapters, of which the main stream has none.
    """
    save_pair(tmp_path, formats.VOCABULARY, layers=4)
    target = load_model(tmp_path / "target", dtype="float64")
    streams = kind != "hidden transfer"
    adapters = 2 * (kind == "streams")
    stored = formats.streams(adapters=adapters) if streams else formats.hidden_transfer()
    head = load_head(stored.save(tmp_path / "slots"), target)
    text, node = torch.tensor([[3, 14, 15, 9, 26, 5]]), 4
    by_step = [*unrolled(head, text, torch.zeros(1, 6, 32).double(), 3)]
    stock = LlamaForCausalLM.from_pretrained(tmp_path / "target", dtype=torch.float64)
    inner, given, begin = stock.model, stored.tensors, len(text[0, : node + 1])

    def entering(state: Tensor) -> list[Tensor]:
        if not streams:
            return [state @ one.T for one in given["slots.weight"]]
        mapped = state @ given["map_down"].T @ given["map_up"].T
        return [mapped + one for one in given["slots.weight"]]

    def adapt(linear: Any, down: Tensor, up: Tensor) -> None:
        def added(_: Any, inputs: tuple[Tensor], made: Tensor) -> Tensor:
            more = inputs[0][:, begin:] @ down.T @ up.T
            return torch.cat([made[:, :begin], made[:, begin:] + more], 1)

        linear.register_forward_hook(added)

    for number, layer in enumerate(inner.layers[2:] if adapters else ()):
        at, down = layer.self_attn, given["adapters.qkv_down"][number]
        parts = given["adapters.qkv_up"][number].split((32, 16, 16))
        for name, up in zip("qkv", parts, strict=True):
            adapt(getattr(at, f"{name}_proj"), down, up)
        adapt(at.o_proj, given["adapters.output_down"][number], given["adapters.output_up"][number])
    with torch.no_grad():
        states = inner.embed_tokens(text[:, : node + 1])
        for number, layer in enumerate(inner.layers):
            if number == 2:
                states = torch.cat([states, *entering(states[:, node:])], 1)
            length = states.shape[1]
            angles = inner.rotary_emb(states, position_ids=torch.arange(length)[None])
            mask = torch.full((1, 1, length, length), -torch.inf).double().triu(1)
            states = layer(states, attention_mask=mask, position_embeddings=angles)
        wanted = stock.lm_head(inner.norm(states))[0, node + 1 :]
    for step in range(3):
        torch.testing.assert_close(by_step[step][0, node + 1], wanted[step], rtol=0, atol=2e-5)
    assert all(not torch.equal(a, b) for a, b in pairwise(wanted))


def test_a_soft_prompt_is_seen_by_slots_alone(tmp_path: Path) -> None:
    """BiTA, arXiv 2401.12522 section 3.1: keys and values before the text's, in a pass of masks."""
    save_pair(tmp_path, formats.VOCABULARY, layers=4)
    target = load_model(tmp_path / "target", dtype="float64")
    stored = formats.bita()
    head = load_head(stored.save(tmp_path / "slots"), target)
    text, given = torch.tensor([[3, 14, 15, 9, 26]]), stored.tensors
    by_step = [*unrolled(head, torch.tensor([[*text[0], 5]]), torch.zeros(1, 6, 32).double(), 3)]
    stock = LlamaForCausalLM.from_pretrained(tmp_path / "target", dtype=torch.float64)
    with torch.no_grad():
        cache = stock(text, use_cache=True).past_key_values
        for number, layer in enumerate(cache.layers):
            for name in ("keys", "values"):
                own = given[f"adapters.prompt_{name}"][number].unflatten(1, (2, 8)).transpose(0, 1)
                setattr(layer, name, torch.cat([own[None], getattr(layer, name)], 2))
        places, masks = torch.arange(5, 8)[None], given["slots.weight"][None]
        wanted = stock(inputs_embeds=masks, position_ids=places, past_key_values=cache).logits[0]
    for step in range(3):
        torch.testing.assert_close(by_step[step][0, 5], wanted[step], rtol=0, atol=2e-5)
    assert all(not torch.equal(a, b) for a, b in pairwise(wanted))
