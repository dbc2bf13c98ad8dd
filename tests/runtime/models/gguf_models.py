"""Checkpoints of the Llama family as GGUF files, written by the package `gguf`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn": "attn",
    "mlp": "ffn", "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "output",
    "q_norm": "q_norm", "k_norm": "k_norm", "gate_proj": "gate", "up_proj": "up",
    "down_proj": "down",
}  # fmt: skip
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
SIZES: dict[str, Any] = dict(
    vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
    tie_word_embeddings=False, eos_token_id=0, bos_token_id=0,
)  # fmt: skip


def save_source(folder: Path, family: str = "llama", **changes: Any) -> Path:
    """A small random checkpoint, whose rows are whole blocks."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **changes})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def renamed(name: str) -> str:
    """The GGUF name of a tensor of a checkpoint."""
    place, _, end = name.rpartition(".")
    if place in OUTER:
        return f"{OUTER[place]}.{end}"
    _, _, layer, *words = place.split(".")
    return f"blk.{layer}.{'_'.join(PARTS[word] for word in words)}.{end}"


def in_turn(rows: Any, heads: int) -> Any:
    """Rows of the halves of each head in turn, as llama.cpp has those of Llama."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def write_gguf(
    source: Path,
    path: Path,
    kinds: Callable[[str], str],
    more: Mapping[str, Any] | None = None,
    *,
    architecture: str = "llama",
    tokenizer: Path | None = None,
    largest: int = 0,
    scaling: str = "",
) -> Path:
    """Write a checkpoint.

    Args:
        source: its folder.
        path: of the file.
        kinds: from the name of a matrix in the file to its type.
        more: further tensors.
        architecture: what the file says of itself.
        tokenizer: folder of one to write too.
        largest: tensors of a file, of several files; 0 for one file.
        scaling: of the rotary embedding, if any.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="float32")
    config = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=largest)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_name("tiny")
    if scaling:
        writer.add_string(f"{architecture}.rope.scaling.type", scaling)
    if tokenizer is not None:
        add_tokenizer(writer, tokenizer, config.vocab_size)
    for name, tensor in (model.state_dict() | dict(more or {})).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        rows = tensor.float().numpy()
        turned = {"q_proj": heads, "k_proj": kv_heads}.get(name.rpartition(".")[0].split(".")[-1])
        if architecture == "llama" and turned:
            rows = in_turn(rows, turned)
        new = name if name in (more or {}) else renamed(name)
        kind = gguf.GGMLQuantizationType[kinds(new) if rows.ndim == 2 else "F32"]
        packed = gguf.quants.quantize(np.ascontiguousarray(rows), kind)
        writer.add_tensor(new, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if not largest else sorted(path.parent.glob(f"{path.stem}-00001-*"))[0]


def add_tokenizer(writer: Any, folder: Path, size: int) -> None:
    """Write a byte-level BPE."""
    known = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [gguf.TokenType.UNUSED] * size
    for text, number in known["model"]["vocab"].items():
        tokens[number], kinds[number] = text, gguf.TokenType.NORMAL
    for added in known["added_tokens"]:
        tokens[added["id"]], kinds[added["id"]] = added["content"], gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = known["model"]["merges"]
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
