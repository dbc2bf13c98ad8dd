"""What a GGUF file calls the parts of a Llama checkpoint, by the package `gguf` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf

PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn": "attn",
    "mlp": "ffn", "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "output",
    "q_norm": "q_norm", "k_norm": "k_norm", "gate_proj": "gate", "up_proj": "up",
    "down_proj": "down",
}  # fmt: skip
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def renamed(name: str) -> str:
    """The GGUF name of a tensor of a checkpoint."""
    place, _, end = name.rpartition(".")
    if place in OUTER:
        return f"{OUTER[place]}.{end}"
    _, _, layer, *words = place.split(".")
    return f"blk.{layer}.{'_'.join(PARTS[word] for word in words)}.{end}"


def in_turn(name: str, rows: Any, config: Mapping[str, Any]) -> Any:
    """Rows of the halves of each head in turn, as ggml's rotary embedding has those of Llama.

    Args:
        name: of the tensor in the checkpoint; those of other projections stay as they are.
        rows: the tensor.
        config: of the checkpoint.
    """
    counts = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    count = counts.get(name.rpartition(".")[0].split(".")[-1])
    if count is None:
        return rows
    halves = rows.reshape(config[count], 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def add_sizes(writer: Any, config: Mapping[str, Any]) -> None:
    """What the configuration of a checkpoint says."""
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def add_tokenizer(writer: Any, folder: Path, size: int) -> None:
    """The tokens of a byte-level BPE."""
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


def finish(writer: Any) -> None:
    """Write all that was added."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
