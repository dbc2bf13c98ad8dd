"""Parity with stock transformers: prefill, steps, ragged batches, trees, windows."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.models.attention import additive_mask, assert_attention, grouped_attention
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.loading import load_model
from specplan.runtime.models.supported import check_supported
from tests.runtime.tiny_models import CONFIGS, VOCABULARY

Folder = Callable[..., Path]
TOLERANCE = 3e-4
"""Of logits around 1 in float32; chunks of recurrent layers add up in another order than steps."""

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(params=sorted(CONFIGS))
def pair(request: pytest.FixtureRequest, tiny: Folder) -> tuple[Any, CausalModel]:
    """The stock model and ours, of one checkpoint."""
    return _load(tiny(request.param))


@cache
def _load(folder: Path, dtype: str = "float32") -> tuple[Any, CausalModel]:
    stock = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation="eager"
    ).eval()
    return stock, load_model(folder, dtype=dtype)


@torch.no_grad()
def _stock_logits(stock: Any, tokens: list[int]) -> torch.Tensor:
    return stock(torch.tensor([tokens])).logits[0]


def _text(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (length,), generator=generator).tolist()


def _prefill(model: CausalModel, cache: KVCache, texts: list[list[int]]) -> torch.Tensor:
    """Prefill a ragged batch; text i sits at slot i; padding goes to the trash slot."""
    width = max(map(len, texts))
    tokens = torch.zeros(len(texts), width, dtype=torch.int64)
    slots = torch.full_like(tokens, cache.trash)
    positions = torch.full_like(tokens, 10**9)
    mask = torch.zeros(len(texts), width, width, dtype=torch.bool)
    for row, text in enumerate(texts):
        count = len(text)
        tokens[row, :count] = torch.tensor(text)
        slots[row, :count] = positions[row, :count] = torch.arange(count)
        mask[row, :count, :count] = torch.ones(count, count).tril().bool()
    return model.forward(tokens, positions, slots, mask, cache)


def test_prefill_and_steps(pair: tuple[Any, CausalModel]) -> None:
    stock, model = pair
    text = _text(20)
    expected = _stock_logits(stock, text)
    cache = model.new_cache(1, 32)
    assert (_prefill(model, cache, [text[:9]])[0] - expected[:9]).abs().max() < TOLERANCE
    for place in range(9, 20):
        at = torch.tensor([[place]])
        mask = torch.ones(1, 1, place + 1, dtype=torch.bool)
        logits = model.forward(torch.tensor([[text[place]]]), at, at, mask, cache)
        assert logits.dtype == torch.float32
        assert (logits[0, 0] - expected[place]).abs().max() < TOLERANCE


def test_ragged_batch_with_gathered_rows(pair: tuple[Any, CausalModel]) -> None:
    stock, model = pair
    texts = [_text(7, 1), _text(12, 2), _text(3, 3)]
    cache = model.new_cache(3, 32)
    logits = _prefill(model, cache, texts)
    for row, text in enumerate(texts):
        expected = _stock_logits(stock, text)
        assert (logits[row, : len(text)] - expected).abs().max() < TOLERANCE
    # Two more tokens each, at ragged slots; row 1 has only one live lane.
    more = torch.tensor([[5, 6], [7, 0], [8, 9]])
    lengths = torch.tensor([[7], [12], [3]])
    positions = lengths + torch.arange(2)
    slots = positions.clone()
    slots[1, 1] = cache.trash
    slot_index = torch.arange(20)
    mask = slot_index[None, None, :] <= positions[:, :, None]
    mask[1, 1] = False
    gather = torch.tensor([[1], [0], [1]])
    rows = model.forward(more, positions, slots, mask, cache, gather)
    assert rows.shape == (3, 1, VOCABULARY)
    for row, text in enumerate(texts):
        live = more[row].tolist()[: 1 if row == 1 else 2]
        expected = _stock_logits(stock, text + live)[-1]
        assert (rows[row, 0] - expected).abs().max() < TOLERANCE


@st.composite
def _trees(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    count = draw(st.integers(1, 12))
    parents = [draw(st.integers(-1, node - 1)) for node in range(count)]
    tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=count, max_size=count))
    return parents, tokens


def _path(parents: list[int], node: int) -> list[int]:
    """Nodes from the first below the root down to `node`."""
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


@pytest.mark.parametrize("name", sorted(CONFIGS))
@settings(max_examples=12)
@given(tree=_trees(), shuffle=st.randoms(use_true_random=False))
def test_tree_paths_equal_plain_forward(
    name: str, tree: tuple[list[int], list[int]], shuffle: Any, tiny: Folder
) -> None:
    """Every path of a tree, at shuffled slots, gets the logits of its plain text."""
    stock, model = _load(tiny(name))
    parents, node_tokens = tree
    text = _text(9)
    cache = model.new_cache(1, 40)
    _prefill(model, cache, [text])
    slot_of = list(range(9, 9 + len(parents) + 4))
    shuffle.shuffle(slot_of)
    slot_of = slot_of[: len(parents)]
    mask = torch.zeros(1, len(parents), 40, dtype=torch.bool)
    mask[:, :, :9] = True
    depths = []
    for node in range(len(parents)):
        path = _path(parents, node)
        depths.append(8 + len(path))
        mask[0, node, [slot_of[step] for step in path]] = True
    logits = model.forward(
        torch.tensor([node_tokens]), torch.tensor([depths]), torch.tensor([slot_of]), mask, cache
    )
    for node in range(len(parents)):
        plain = text + [node_tokens[step] for step in _path(parents, node)]
        expected = _stock_logits(stock, plain)[-1]
        assert (logits[0, node] - expected).abs().max() < TOLERANCE
    # Compact the deepest path behind the text and go on from there.
    deepest = max(range(len(parents)), key=lambda node: depths[node])
    path = _path(parents, deepest)
    source = torch.tensor([[slot_of[step] for step in path] + [0]])
    destination = torch.tensor([[9 + index for index in range(len(path))] + [3]])
    live = torch.ones_like(source, dtype=torch.bool)
    live[0, -1] = False
    cache.move(source, destination, live)
    at = torch.tensor([[9 + len(path)]])
    mask = torch.ones(1, 1, 10 + len(path), dtype=torch.bool)
    after = model.forward(torch.tensor([[7]]), at, at, mask, cache)
    plain = text + [node_tokens[step] for step in path] + [7]
    assert (after[0, 0] - _stock_logits(stock, plain)[-1]).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2"])
def test_float64(name: str, tiny: Folder) -> None:
    stock, model = _load(tiny(name), "float64")
    text = _text(15)
    logits = _prefill(model, model.new_cache(1, 20), [text])
    assert logits.dtype == torch.float64
    # transformers computes RMSNorm and rotary angles in float32 even here.
    assert (logits[0] - _stock_logits(stock, text)).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["llama", "qwen3_windows", "opt"])
def test_bfloat16(name: str, tiny: Folder) -> None:
    """Rounding differs from the stock layers', by no more than rounding."""
    exact, _ = _load(tiny(name))
    stock, model = _load(tiny(name), "bfloat16")
    text = _text(15)
    logits = _prefill(model, model.new_cache(1, 20), [text])[0]
    truth = _stock_logits(exact, text)
    error = (logits - truth).norm() / truth.norm()
    assert logits.dtype == torch.float32
    assert error < 2 * (_stock_logits(stock, text).float() - truth).norm() / truth.norm() + 0.01


def test_windows_go_by_position_not_slot(tiny: Folder) -> None:
    """The same text at far slots in reverse order gives the same logits under a window."""
    stock, model = _load(tiny("mistral"))
    text = _text(16)
    cache = model.new_cache(1, 60)
    positions = torch.arange(16)[None]
    slots = 59 - 3 * positions
    mask = torch.zeros(1, 16, 60, dtype=torch.bool)
    for query in range(16):
        mask[0, query, slots[0, : query + 1]] = True
    logits = model.forward(torch.tensor([text]), positions, slots, mask, cache)
    assert (logits[0] - _stock_logits(stock, text)).abs().max() < TOLERANCE


def test_move_many_rows_equals_one_row(tiny: Folder) -> None:
    _, model = _load(tiny("llama"))
    many = model.new_cache(2, 10)
    for tensor in [*many.keys, *many.values]:
        tensor.normal_()
    many.positions.random_(0, 50)
    source, destination = torch.tensor([[4, 6, 2], [3, 9, 0]]), torch.tensor([[2, 4, 5], [0, 1, 2]])
    live = torch.tensor([[True, True, False], [True, True, True]])
    singles = []
    for row in range(2):
        single = model.new_cache(1, 10)
        for one, both in zip(single.keys + single.values, many.keys + many.values, strict=True):
            one.copy_(both[row : row + 1])
        single.positions.copy_(many.positions[row : row + 1])
        single.move(source[row : row + 1], destination[row : row + 1], live[row : row + 1])
        singles.append(single)
    many.move(source, destination, live)
    for row, single in enumerate(singles):
        for one, both in zip(single.keys + single.values, many.keys + many.values, strict=True):
            assert torch.equal(one[0, :, :10], both[row, :, :10])
        assert torch.equal(single.positions[0, :10], many.positions[row, :10])


def test_dead_lanes_stay_finite(pair: tuple[Any, CausalModel]) -> None:
    """A lane that attends to nothing, at an impossible position, yields no NaN anywhere."""
    _, model = pair
    cache = model.new_cache(2, 8)
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    slots = torch.full((2, 3), cache.trash)
    for place in (-1, 10**6):
        positions = torch.full((2, 3), place)
        nothing = torch.zeros(2, 3, 9, dtype=torch.bool)
        assert model.forward(tokens, positions, slots, nothing, cache).isfinite().all()
    assert all(tensor.isfinite().all() for tensor in cache.keys + cache.values)


def test_grouped_attention_equals_repeated_heads() -> None:
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(2, 6, 4, 8, generator=generator)
    key, value = torch.randn(2, 2, 2, 7, 8, generator=generator)
    mask = torch.rand(2, 4, 7, generator=generator) < 0.6
    mask[:, :, 0] = True
    ours, _ = grouped_attention(
        None, query, key, value, additive_mask(mask, 3, query.dtype), scaling=0.3
    )
    scores = query @ key.repeat_interleave(3, 1).transpose(-1, -2) * 0.3
    weights = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1)
    expected = (weights @ value.repeat_interleave(3, 1)).transpose(1, 2)
    assert torch.allclose(ours, expected, atol=1e-5)


def test_attention_is_asserted(tiny: Folder) -> None:
    stock, _ = _load(tiny("gpt2"))
    with pytest.raises(MissingCapabilityError, match="eager"):
        assert_attention(stock)


def test_facts_of_the_model(tiny: Folder) -> None:
    folder = tiny("llama")
    model = load_model(folder)
    assert model.dtype == torch.float32
    assert (model.name, model.vocab_size, model.num_layers) == (folder.name, VOCABULARY, 3)
    assert model.max_positions == 128
    assert len(model.digest) == 64
    assert model.digest != load_model(tiny("llama", seed=1)).digest


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba"}, "mamba.*recurrent"),
        ({"model_type": "jamba"}, "jamba.*recurrent"),
        ({"model_type": "qwen3_5", "layer_types": ["linear_attention"]}, "recurrent"),
        ({"model_type": "qwen3", "layer_types": ["linear_attention"]}, "recurrent"),
        ({"model_type": "rwkv"}, "rwkv.*recurrent"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        (
            {"model_type": "mixtral"},
            "mixtral.*gpt2, llama, mamba2, mistral, opt, .*qwen3_next",
        ),
        ({"model_type": "llama", "rope_scaling": {"type": "dynamic"}}, "dynamic"),
        ({"model_type": "llama", "quantization_config": {"bits": 4}}, "quantised"),
        ({}, "missing"),
    ],
)
def test_refusals_name_the_architecture(config: dict[str, Any], words: str) -> None:
    with pytest.raises(MissingCapabilityError, match=words):
        check_supported(config, "folder")


def test_refusal_through_load(tmp_path: Path, tiny: Folder) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(UsageError, match="safetensors"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(MissingCapabilityError, match="mamba"):
        load_model(tmp_path)
    with pytest.raises(UsageError, match=r"no such file or folder"):
        load_model(tmp_path / "absent")
    with pytest.raises(UsageError, match="float12"):
        load_model(tiny("llama"), dtype="float12")
