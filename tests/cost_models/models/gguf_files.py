"""A writer of GGUF files (ggml's docs/gguf.md), and tiny models as llama.cpp names them."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specplan.cost_models.models.number_formats import GGUF_BLOCKS

TYPE_NUMBERS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}
Tensors = dict[str, tuple[tuple[int, ...], str]]
"""By name: dimensions in ggml's order (inputs first) and type."""


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Tensors) -> int:
    """Write a model whose data are zeros; returns the bytes of its tensors."""
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        out += [_text(key), _value(value)]
    offset, sizes = 0, []
    for name, (dimensions, kind) in tensors.items():
        elements, block = GGUF_BLOCKS[kind]
        size = math.prod(dimensions) // elements * block
        out += [_text(name), struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)]
        out.append(struct.pack("<IQ", TYPE_NUMBERS[kind], offset))
        offset += -(-size // 32) * 32
        sizes.append(size)
    header = b"".join(out)
    path.write_bytes(header + bytes(-len(header) % 32 + offset))
    return sum(sizes)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    kinds = {bool: 7, int: 4, float: 6, str: 8}
    kind = kinds[type(value[0])]
    items = b"".join(_value(item)[4:] for item in value)
    return struct.pack("<IIQ", 9, kind, len(value)) + items


def llama_metadata(sizes: Mapping[str, Any], architecture: str, **more: Any) -> dict[str, Any]:
    """The keys that every architecture has, from the sizes of a config.json."""
    names = {
        "embedding_length": "hidden_size",
        "block_count": "num_hidden_layers",
        "feed_forward_length": "intermediate_size",
        "context_length": "max_position_embeddings",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
    }
    fields = {f"{architecture}.{name}": sizes[key] for name, key in names.items()}
    extra = {f"{architecture}.{key}": value for key, value in more.items()}
    return {
        "general.architecture": architecture,
        "general.file_type": 15,
        "tokenizer.ggml.tokens": [f"token {i}" for i in range(5000)],
        "tokenizer.ggml.scores": [0.5] * 5000,
        **fields,
        **extra,
    }


def grouped_layer(
    sizes: Mapping[str, Any], index: int, head_dim: int, kinds: Mapping[str, str]
) -> Tensors:
    """Attention and its norm of one layer, as in llama."""
    hidden, blk = sizes["hidden_size"], f"blk.{index}"
    queries = sizes["num_attention_heads"] * head_dim
    keys = sizes["num_key_value_heads"] * head_dim
    return {
        f"{blk}.attn_norm.weight": ((hidden,), "F32"),
        f"{blk}.attn_q.weight": ((hidden, queries), kinds["attn"]),
        f"{blk}.attn_k.weight": ((hidden, keys), kinds["attn"]),
        f"{blk}.attn_v.weight": ((hidden, keys), kinds["attn_v"]),
        f"{blk}.attn_output.weight": ((queries, hidden), kinds["attn"]),
        f"{blk}.ffn_norm.weight": ((hidden,), "F32"),
    }


def dense_mlp(hidden: int, inner: int, index: int, up: str, down: str) -> Tensors:
    """A gated MLP."""
    return {
        f"blk.{index}.ffn_gate.weight": ((hidden, inner), up),
        f"blk.{index}.ffn_up.weight": ((hidden, inner), up),
        f"blk.{index}.ffn_down.weight": ((inner, hidden), down),
    }


def experts(hidden: int, inner: int, count: int, index: int, kind: str) -> Tensors:
    """Routed experts and their router."""
    return {
        f"blk.{index}.ffn_gate_inp.weight": ((hidden, count), "F32"),
        f"blk.{index}.ffn_gate_exps.weight": ((hidden, inner, count), kind),
        f"blk.{index}.ffn_up_exps.weight": ((hidden, inner, count), kind),
        f"blk.{index}.ffn_down_exps.weight": ((inner, hidden, count), kind),
    }


def ends(sizes: Mapping[str, Any], embedding: str, head: str | None) -> Tensors:
    """Embedding, last norm and, unless it is tied, the head."""
    hidden, vocabulary = sizes["hidden_size"], sizes["vocab_size"]
    tensors: Tensors = {
        "token_embd.weight": ((hidden, vocabulary), embedding),
        "output_norm.weight": ((hidden,), "F32"),
        "rope_freqs.weight": ((16,), "F32"),
    }
    if head is not None:
        tensors["output.weight"] = ((hidden, vocabulary), head)
    return tensors
