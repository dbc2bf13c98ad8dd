"""A model of the Llama family from GGUF files.

Names of tensors and of metadata are those of `gguf` (constants.py). `transformers` has a loader of
its own, which knows neither blocks, nor files in parts, nor the rotary factors of Llama 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from specplan.cost_models.models.files.gguf_config import (
    check_gguf_runs,
    is_plain,
    run_dtype,
)
from specplan.cost_models.models.files.gguf_headers import GgufModel, read_gguf
from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import files_digest
from specplan.runtime.models.attention import ATTENTION_NAME, assert_attention
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.gguf.tensors import GgufTensors
from specplan.runtime.models.quantized import QuantizedLinear

_PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
"""Parts of a layer, as `transformers` and as GGUF files name them."""
_ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_JOINED = (("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up"))
"""Matrices that a layer multiplies by as one, and so in one format."""
_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies (Llama 3)."""
_PLAIN = ("F32", "F16", "BF16")


def load_gguf(path: Path, dtype: str = "auto", device: str = "cpu") -> CausalModel:
    """Load a model from a GGUF file, or from the first file of several.

    Matrices in Q8_0 and Q4_0 are multiplied by as they are stored, see `QuantizedMatrix`. Other
    quantised ones run dequantised, and a warning says so.

    Args:
        path: the file.
        dtype: of activations and of weights that are not in blocks; "auto" is that of the file, or
            float32 for files with quantised weights, which allow no other.
        device: a torch device.

    Raises:
        UsageError: a file is broken, or does not hold what its metadata describe.
        MissingCapabilityError: the architecture, a type of tensor or `dtype` does not run, or the
            package gguf is not installed.
    """
    stored = read_gguf(path)
    config = check_gguf_runs(stored)
    own = run_dtype(stored)
    if dtype not in ("auto", own) and not is_plain(stored):
        raise MissingCapabilityError(
            f"a GGUF file with quantised weights runs in float32, not in {dtype}",
            where=str(path),
            remedy="Leave dtype out.",
        )
    own = own if dtype == "auto" else dtype
    model, kinds = _model(stored, config, getattr(torch, own))
    others = sorted(kinds - {*_PLAIN})
    if others:
        warnings.warn(
            f"{path}: its weights in {', '.join(others)} run as the {own} numbers that they stand "
            "for",
            stacklevel=2,
        )
    model.to(device)
    assert_attention(model)
    made = CausalModel(model, name=path.stem, digest=files_digest(stored.files))
    made.quantized = any(isinstance(part, QuantizedLinear) for part in model.modules())
    return made


def stock_model(path: Path, dtype: torch.dtype) -> Any:
    """The model of `transformers`, which knows no blocks; errors as of `load_gguf`."""
    stored = read_gguf(path)
    model, _ = _model(stored, check_gguf_runs(stored), dtype, in_blocks=False)
    model.generation_config.eos_token_id = None
    return model


def _model(
    stored: GgufModel,
    config: Mapping[str, Any],
    dtype: torch.dtype,
    *,
    in_blocks: bool = True,
) -> tuple[Any, set[str]]:
    """The model of `transformers` with all weights, and the types of those that are not in blocks.

    Args:
        stored: what the files say.
        config: its config.json.
        dtype: of weights that are not in blocks.
        in_blocks: for `CausalModel`, with matrices as they are stored; else all are numbers.

    Raises:
        UsageError: the files hold tensors that the model does not read, or lack some.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    architecture = stored.metadata["general.architecture"]
    made = AutoConfig.for_model(config["model_type"], **_settings(stored, config))
    with torch.device("meta"):
        attention = {"attn_implementation": ATTENTION_NAME} if in_blocks else {}
        model: Any = AutoModelForCausalLM.from_config(made, dtype=dtype, **attention)
    turned = {
        f"blk.{layer}.{name}.{end}": heads
        for layer in range(made.num_hidden_layers)
        for name, heads in (
            ("attn_q", made.num_attention_heads), ("attn_k", made.num_key_value_heads)
        )
        for end in ("weight", "bias")
    }  # fmt: skip
    tensors = GgufTensors(stored.files, turned if architecture == "llama" else {})
    rotary = model.model.rotary_emb = type(model.model.rotary_emb)(made)
    if _FACTORS in tensors:
        rotary.inv_freq /= tensors.dense(_FACTORS, torch.float32)
    kinds = _fill(model, tensors, dtype, in_blocks)
    unread = next((name for name in tensors if name not in tensors.read), None)
    if unread is not None:
        raise UsageError(
            f"a {config['model_type']} model has no tensor {unread}",
            where=str(stored.files[0]),
            remedy="Convert the model again, with llama.cpp's convert_hf_to_gguf.py.",
        )
    return model, kinds


def _settings(stored: GgufModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the configuration: sizes, norms and rotary embedding."""
    architecture = stored.metadata["general.architecture"]

    def value(key: str, default: Any = None) -> Any:
        return stored.metadata.get(f"{architecture}.{key}", default)

    rope = {"rope_type": "default", "rope_theta": value("rope.freq_base", 10_000.0)}
    scaling = value("rope.scaling.type", "none")
    if scaling == "linear":
        rope |= {"rope_type": scaling, "factor": value("rope.scaling.factor")}
    elif scaling != "none":
        raise MissingCapabilityError(
            f"rotary scaling {scaling!r} of GGUF files does not run",
            where=str(stored.files[0]),
            remedy="Use a checkpoint folder of the model.",
        )
    names = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "head_dim", "vocab_size",
        "tie_word_embeddings", "attention_bias", "mlp_bias",
    )  # fmt: skip
    settings = {name: config[name] for name in names if name in config}
    if config["model_type"] == "mistral":
        settings["sliding_window"] = config["sliding_window"]
    return settings | {
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon", 1e-6),
        "rope_parameters": rope,
        "bos_token_id": stored.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": stored.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _fill(model: Any, tensors: GgufTensors, dtype: torch.dtype, in_blocks: bool) -> set[str]:
    """Give a model its weights; the types of those that are not in blocks."""
    blocks, kinds = {}, set[str]()
    state = {}
    for key in model.state_dict():
        place, _, end = key.rpartition(".")
        name = f"{_stem(place, tensors)}.{end}"
        matrix = in_blocks and end == "weight" and place.endswith(("_proj", "lm_head"))
        if matrix and _whole(name, tensors):
            blocks[place] = tensors.matrix(name)
            state[key] = blocks[place].values
            continue
        kind = tensors.kind(name)
        state[key] = tensors.dense(name, dtype)
        if place != "model.embed_tokens" or kind not in RUN_FORMATS:
            kinds.add(kind)
    if model.config.tie_word_embeddings:
        state["model.embed_tokens.weight"] = state["lm_head.weight"]
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    for place, matrix in blocks.items():
        parent, _, own = place.rpartition(".")
        layer = QuantizedLinear(matrix, model.get_submodule(place).bias)
        setattr(model.get_submodule(parent), own, layer)
    return kinds


def _stem(place: str, tensors: GgufTensors) -> str:
    """The name of a module's tensors in the file."""
    if place in _ENDS:
        tied = place == "lm_head" and "output.weight" not in tensors
        return _ENDS["model.embed_tokens" if tied else place]
    _, _, layer, part = place.split(".", 3)
    return f"blk.{layer}.{_PARTS[part]}"


def _whole(name: str, tensors: GgufTensors) -> bool:
    """Whether a matrix is in blocks that run, and so are all that it is joined with."""
    kind = tensors.kind(name)
    stem, part, end = name.rpartition(".")[0].rpartition(".")[0], name.split(".")[-2], "weight"
    group = next((group for group in _JOINED if part in group), ())
    return kind in RUN_FORMATS and all(
        tensors.kind(f"{stem}.{other}.{end}") == kind for other in group
    )
