"""GGUF files: shapes as those of the config.json they were converted from, bytes exact."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.models.files.gguf_headers import read_gguf
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import MissingCapabilityError, SpecplanError, UsageError
from tests.cost_models.models.gguf_files import (
    TYPE_NUMBERS,
    Tensors,
    dense_mlp,
    ends,
    experts,
    grouped_layer,
    llama_metadata,
    write_gguf,
)
from tests.cost_models.models.tiny_families import TINY

WIDE: dict[str, Any] = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 768,
    "vocab_size": 1001,
    "max_position_embeddings": 64,
}
"""Wide enough for blocks of 256 elements."""


def mixed_llama() -> Tensors:
    """As Q4_K_M is: half of the value and down projections in Q6_K, and so the head."""
    tensors = ends(WIDE, "Q4_K", "Q6_K")
    for index in range(4):
        wide = "Q6_K" if index % 2 else "Q4_K"
        tensors |= grouped_layer(WIDE, index, 64, {"attn": "Q4_K", "attn_v": wide})
        tensors |= dense_mlp(512, 768, index, "Q4_K", wide)
    return tensors


def test_mixed_types_have_exact_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model-q4_k_m.gguf"
    size = write_gguf(path, llama_metadata(WIDE, "llama"), mixed_llama())
    shape = ModelShape.from_gguf(path)
    stated = ModelShape.from_config({"model_type": "llama"} | WIDE)
    assert shape.layers == stated.layers
    assert shape.parameters == stated.parameters
    assert shape.weight_bytes == pytest.approx(size - 16 * 4, rel=1e-12)  # without rope_freqs
    assert shape.formats.head.name == "Q6_K"
    assert shape.formats.mlp.name == "Q4_K/Q6_K"
    assert 8 * shape.formats.mlp.bytes_per_element == pytest.approx(4.5 + (6.5625 - 4.5) / 6)
    assert (shape.name, shape.dtype) == ("model-q4_k_m", "float16")
    assert shape.kv_bytes_per_token == stated.kv_bytes_per_token  # both of two bytes
    cached = ModelShape.from_gguf(path, kv_format="Q8_0", dtype="bfloat16")
    assert cached.kv_bytes_per_token == 4 * 2 * 2 * 64 * 34 / 32


def test_digest_is_that_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_gguf(path, llama_metadata(WIDE, "llama"), mixed_llama())
    before = ModelShape.from_gguf(path).digest
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    (tmp_path / "b").mkdir()
    (tmp_path / "b/a.gguf").write_bytes(bytes(data))
    assert ModelShape.from_gguf(tmp_path / "b/a.gguf").digest != before


def moe_file(kind: str, architecture: str, tmp_path: Path, **more: Any) -> ModelShape:
    """A tiny model of experts after `TINY`, all in float32."""
    _, sizes = TINY[kind]
    head_dim = sizes.get("head_dim") or sizes["hidden_size"] // sizes["num_attention_heads"]
    count = sizes.get("num_experts", sizes.get("num_local_experts"))
    inner = sizes.get("moe_intermediate_size", sizes["intermediate_size"])
    tensors = ends(sizes, "F32", "F32")
    for index in range(sizes["num_hidden_layers"]):
        tensors |= grouped_layer(sizes, index, head_dim, {"attn": "F32", "attn_v": "F32"})
        tensors |= experts(sizes["hidden_size"], inner, count, index, "F32")
        if architecture == "qwen3moe":
            for name in ("attn_q_norm", "attn_k_norm"):
                tensors[f"blk.{index}.{name}.weight"] = ((head_dim,), "F32")
    metadata = llama_metadata(
        sizes,
        architecture,
        expert_count=count,
        expert_used_count=sizes["num_experts_per_tok"],
        **more,
    )
    path = tmp_path / f"{kind}.gguf"
    write_gguf(path, metadata, tensors)
    return ModelShape.from_gguf(path)


def test_mixtral_is_called_llama(tmp_path: Path) -> None:
    family, sizes = TINY["mixtral"]
    shape = moe_file("mixtral", "llama", tmp_path)
    stated = ModelShape.from_config({"model_type": family} | sizes | {"sliding_window": None})
    assert (shape.architecture, shape.layers) == ("mixtral", stated.layers)
    assert shape.parameters == stated.parameters


def test_qwen3_with_experts(tmp_path: Path) -> None:
    family, sizes = TINY["qwen3_moe"]
    more = {"expert_feed_forward_length": 20, "attention.key_length": 16}
    shape = moe_file("qwen3_moe", "qwen3moe", tmp_path, **more)
    stated = ModelShape.from_config({"model_type": family} | sizes | {"mlp_only_layers": []})
    assert shape.layers == stated.layers
    assert shape.dtype == "float32"


def test_gemma3_with_windows_and_a_tied_head(tmp_path: Path) -> None:
    family, sizes = TINY["gemma3_text"]
    tensors = ends(sizes, "F16", None)
    for index in range(7):
        tensors |= grouped_layer(sizes, index, 16, {"attn": "F16", "attn_v": "F16"})
        tensors |= dense_mlp(32, 48, index, "F16", "F16")
        for name, width in {
            "attn_q_norm": 16, "attn_k_norm": 16, "post_attention_norm": 32, "post_ffw_norm": 32
        }.items():  # fmt: skip
            tensors[f"blk.{index}.{name}.weight"] = ((width,), "F32")
    more = {"attention.key_length": 16, "attention.sliding_window": 8}
    path = tmp_path / "gemma.gguf"
    write_gguf(path, llama_metadata(sizes, "gemma3", **more), tensors)
    shape = ModelShape.from_gguf(path)
    stated = ModelShape.from_config({"model_type": family} | sizes | {"sliding_window": 8})
    assert shape.layers == stated.layers
    assert shape.tied_embeddings
    assert shape.layer_windows == (8,) * 5 + (None, 8)


def latent_tensors(sizes: dict[str, Any]) -> Tensors:
    """DeepSeek as newer converters split it: keys and values of the latent apart."""
    heads, rank = sizes["num_attention_heads"], sizes["kv_lora_rank"]
    nope, rope, value = (sizes[f"{k}_head_dim"] for k in ("qk_nope", "qk_rope", "v"))
    hidden, queries = sizes["hidden_size"], sizes["q_lora_rank"]
    tensors = ends(sizes, "F16", "F16")
    for index in range(sizes["num_hidden_layers"]):
        blk = f"blk.{index}"
        tensors |= {
            f"{blk}.attn_norm.weight": ((hidden,), "F32"),
            f"{blk}.ffn_norm.weight": ((hidden,), "F32"),
            f"{blk}.attn_q_a.weight": ((hidden, queries), "F16"),
            f"{blk}.attn_q_a_norm.weight": ((queries,), "F32"),
            f"{blk}.attn_q_b.weight": ((queries, heads * (nope + rope)), "F16"),
            f"{blk}.attn_kv_a_mqa.weight": ((hidden, rank + rope), "F16"),
            f"{blk}.attn_kv_a_norm.weight": ((rank,), "F32"),
            f"{blk}.attn_k_b.weight": ((nope, rank, heads), "F16"),
            f"{blk}.attn_v_b.weight": ((rank, value, heads), "F16"),
            f"{blk}.attn_output.weight": ((heads * value, hidden), "F16"),
        }
        if index == 0:
            tensors |= dense_mlp(hidden, sizes["intermediate_size"], 0, "F16", "F16")
            continue
        inner = sizes["moe_intermediate_size"]
        tensors |= experts(hidden, inner, sizes["n_routed_experts"], index, "F16")
        shared = dense_mlp(hidden, 2 * inner, index, "F16", "F16")
        tensors |= {name.replace(".weight", "_shexp.weight"): of for name, of in shared.items()}
        tensors[f"{blk}.exp_probs_b.bias"] = ((sizes["n_routed_experts"],), "F32")
    return tensors


def test_deepseek_with_latent_attention(tmp_path: Path) -> None:
    family, sizes = TINY["deepseek_v3"]
    more = {
        "attention.q_lora_rank": 20,
        "attention.kv_lora_rank": 12,
        "attention.key_length": 12 + 4,
        "attention.value_length": 12,
        "attention.key_length_mla": 8 + 4,
        "attention.value_length_mla": 6,
        "rope.dimension_count": 4,
        "expert_count": 6,
        "expert_used_count": 3,
        "expert_shared_count": 2,
        "expert_feed_forward_length": 10,
        "leading_dense_block_count": 1,
    }
    path = tmp_path / "deepseek.gguf"
    metadata = llama_metadata(sizes | {"num_key_value_heads": 1}, "deepseek2", **more)
    write_gguf(path, metadata, latent_tensors(sizes))
    shape = ModelShape.from_gguf(path)
    assert shape.layers == ModelShape.from_config({"model_type": family} | sizes).layers
    assert shape.kv_bytes_per_token == 4 * (12 + 4) * 2


def test_a_split_model_is_read_whole(tmp_path: Path) -> None:
    tensors = mixed_llama()
    first = {name: of for name, of in tensors.items() if not name.startswith("blk.3")}
    second = {name: of for name, of in tensors.items() if name.startswith("blk.3")}
    metadata = llama_metadata(WIDE, "llama") | {"split.no": 0, "split.count": 2}
    paths = [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    write_gguf(paths[0], metadata, first)
    write_gguf(paths[1], {"split.no": 1, "split.count": 2}, second)
    whole = tmp_path / "whole.gguf"
    write_gguf(whole, llama_metadata(WIDE, "llama"), tensors)
    assert ModelShape.from_gguf(paths[0]).layers == ModelShape.from_gguf(whole).layers
    paths[1].unlink()
    with pytest.raises(UsageError, match="cannot read"):
        ModelShape.from_gguf(paths[0])


def test_wrong_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    with pytest.raises(UsageError, match="cannot read"):
        ModelShape.from_gguf(path)
    path.write_bytes(b"GGML" + bytes(64))
    with pytest.raises(UsageError, match="GGUF"):
        ModelShape.from_gguf(path)
    write_gguf(path, llama_metadata(WIDE, "mamba"), mixed_llama())
    with pytest.raises(MissingCapabilityError, match="'mamba'"):
        ModelShape.from_gguf(path)
    less = {name: of for name, of in mixed_llama().items() if name != "blk.2.ffn_up.weight"}
    write_gguf(path, llama_metadata(WIDE, "llama"), less)
    with pytest.raises(UsageError, match="tensors of mlp"):
        ModelShape.from_gguf(path)
    write_gguf(path, llama_metadata(WIDE, "llama"), mixed_llama())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match="cut off"):
        ModelShape.from_gguf(path)


def test_unknown_tensor_type_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPE_NUMBERS, "Q4_K", 99)
    path = tmp_path / "a.gguf"
    write_gguf(path, llama_metadata(WIDE, "llama"), mixed_llama())
    with pytest.raises(MissingCapabilityError, match="ggml type 99"):
        ModelShape.from_gguf(path)


@given(data=st.data())
@settings(max_examples=150)
def test_no_bytes_break_the_reader(data: st.DataObject, tmp_path_factory: Any) -> None:
    """Any damage is an error of ours, or harmless: never another exception."""
    folder = tmp_path_factory.mktemp("gguf", numbered=True)
    path = folder / "a.gguf"
    sizes = WIDE | {"num_hidden_layers": 1}
    metadata = llama_metadata(sizes, "llama")
    metadata |= {"tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.scores": [0.5]}
    write_gguf(path, metadata, ends(sizes, "F16", None))
    raw = bytearray(path.read_bytes()[:1200])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw[: data.draw(st.integers(1, len(raw)))]))
    with contextlib.suppress(SpecplanError):
        read_gguf(path)
