"""Tiny checkpoint folders and problem files, written without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

VOCABULARY = [chr(ord("a") + i) for i in range(26)] + ["ab", "bc"]
MERGES = [["a", "b"], ["b", "c"]]
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "vocab_size": len(VOCABULARY),
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def write_tokenizer(folder: Path, vocabulary: list[str], merges: list[Any]) -> None:
    value = {
        "version": "1.0",
        "added_tokens": [],
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(vocabulary)},
            "merges": merges,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(value), encoding="utf-8")


def write_checkpoint(
    folder: Path,
    *,
    vocabulary: list[str] = VOCABULARY,
    merges: list[Any] = MERGES,
    weights: bool = True,
    seed: int = 0,
    **config: Any,
) -> Path:
    """A Llama checkpoint of a few hundred parameters in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    full = {**CONFIG, "vocab_size": len(vocabulary), **config}
    (folder / "config.json").write_text(json.dumps(full), encoding="utf-8")
    write_tokenizer(folder, vocabulary, merges)
    if weights:
        save_file(_llama_tensors(full, seed), folder / "model.safetensors")
    return folder


def _llama_tensors(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    width, inner = config["hidden_size"], config["intermediate_size"]
    head = width // config["num_attention_heads"]
    kv = head * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    shapes["model.norm.weight"] = (width,)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.input_layernorm.weight": (width,),
            f"{at}.post_attention_layernorm.weight": (width,),
            f"{at}.self_attn.q_proj.weight": (width, width),
            f"{at}.self_attn.k_proj.weight": (kv, width),
            f"{at}.self_attn.v_proj.weight": (kv, width),
            f"{at}.self_attn.o_proj.weight": (width, width),
            f"{at}.mlp.gate_proj.weight": (inner, width),
            f"{at}.mlp.up_proj.weight": (inner, width),
            f"{at}.mlp.down_proj.weight": (width, inner),
        }
    numbers = np.random.default_rng(seed)
    return {
        name: numbers.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }


def write_prompts(path: Path, count: int = 8, task: str = "code") -> None:
    lines = [{"id": f"{task}-{i}", "text": f"def f{i}():", "task": task} for i in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def good_problem() -> dict[str, Any]:
    """A problem that uses every key except a trace."""
    return {
        "schema_version": 1,
        "models": {
            "target": {"path": "target", "dtype": "float32"},
            "drafts": [{"name": "draft", "path": "draft", "dtype": "auto"}],
        },
        "sources": ["prompt_lookup"],
        "methods": ["autoregressive", "draft_model", "prompt_lookup"],
        "device": "measured",
        "backend": "eager",
        "workload": {
            "batch_sizes": [1, 4],
            "prompt_tokens": 40,
            "output_tokens": 32,
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.9,
            "task": "code",
            "prompts": "prompts.jsonl",
        },
        "acceptance": {"draft": "draft-acceptance.json"},
        "objective": "latency",
        "limits": {"memory": 2e9, "tpot": 0.05, "ttft": 1.0},
        "profiles": "measured",
        "seed": 0,
    }


def write_good(folder: Path) -> Path:
    """Everything that the good problem names, and the problem file; returns its path."""
    write_checkpoint(folder / "target", num_hidden_layers=2)
    write_checkpoint(folder / "draft", seed=1)
    write_prompts(folder / "prompts.jsonl")
    (folder / "draft-acceptance.json").write_text("{}", encoding="utf-8")
    path = folder / "problem.yaml"
    path.write_text(yaml.safe_dump(good_problem(), sort_keys=False), encoding="utf-8")
    return path
