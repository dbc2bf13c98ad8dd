"""Checkpoints of the Llama family as GGUF files, written by the package `gguf`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from benchmarks.peer_workers.gguf_files import (
    add_sizes,
    add_tokenizer,
    finish,
    in_turn,
    renamed,
)

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
    config = model.config.to_dict()
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=largest)
    add_sizes(writer, config)
    writer.add_name("tiny")
    if scaling:
        writer.add_string(f"{architecture}.rope.scaling.type", scaling)
    if tokenizer is not None:
        add_tokenizer(writer, tokenizer, config["vocab_size"])
    for name, tensor in (model.state_dict() | dict(more or {})).items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        rows = tensor.float().numpy()
        if architecture == "llama":
            rows = in_turn(name, rows, config)
        new = name if name in (more or {}) else renamed(name)
        kind = gguf.GGMLQuantizationType[kinds(new) if rows.ndim == 2 else "F32"]
        packed = gguf.quants.quantize(np.ascontiguousarray(rows), kind)
        writer.add_tensor(new, packed, raw_dtype=kind)
    finish(writer)
    return path if not largest else sorted(path.parent.glob(f"{path.stem}-00001-*"))[0]
