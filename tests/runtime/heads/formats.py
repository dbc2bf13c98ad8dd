"""Random heads in the public formats: config.json and tensors by the names that engines read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

WIDTH, INNER, VOCABULARY, KNOWN = 32, 40, 61, 24
LAYERS: Mapping[str, Any] = {
    "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": VOCABULARY,
    "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 160,
}  # fmt: skip


class Stored(NamedTuple):
    """A checkpoint before it is written."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]

    def save(self, folder: Path) -> Path:
        """Write config.json and one safetensors file."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        save_file({name: x.contiguous() for name, x in self.tensors.items()},
                  folder / "model.safetensors")  # fmt: skip
        return folder


class Random:
    """Random weights, the same for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        made = torch.randn(*shape, generator=self.generator, dtype=torch.float64)
        return made * scale / shape[-1] ** 0.5

    def norm(self, width: int) -> Tensor:
        """Weights of a norm, about 1."""
        return 1.0 + 0.2 * torch.randn(width, generator=self.generator, dtype=torch.float64)

    def layer(
        self, prefix: str, *, inputs: int = WIDTH, inner: int = INNER, head_norms: bool = False
    ) -> dict[str, Tensor]:
        """Attention, MLP and the norm between, of `LAYERS`."""
        made = {
            "self_attn.q_proj.weight": self(32, inputs),
            "self_attn.k_proj.weight": self(16, inputs),
            "self_attn.v_proj.weight": self(16, inputs),
            "self_attn.o_proj.weight": self(WIDTH, 32),
            "mlp.gate_proj.weight": self(inner, WIDTH),
            "mlp.up_proj.weight": self(inner, WIDTH),
            "mlp.down_proj.weight": self(WIDTH, inner),
            "post_attention_layernorm.weight": self.norm(WIDTH),
        }
        if head_norms:
            made |= {f"self_attn.{n}_norm.weight": self.norm(8) for n in "qk"}
        return {f"{prefix}{name}": tensor for name, tensor in made.items()}


def some_tokens(count: int = KNOWN, size: int = VOCABULARY) -> Tensor:
    """Tokens of a reduced vocabulary, rising, int64 `[count]`."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(3))
    return order[:count].sort().values


def eagle3(
    *, names: str = "midlayer", layers: int = 1, reads: int = 3, reduced: bool = True,
    embedding: bool = False, size: int = VOCABULARY, **changes: Any,
) -> Stored:  # fmt: skip
    """EAGLE-3 by SpecForge (`midlayer`) or by `speculators` and NVIDIA (`layers`)."""
    make, known = Random(1), KNOWN if reduced else size
    config = {
        **LAYERS,
        "vocab_size": size,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": layers,
    }
    config |= {"draft_vocab_size": known, **changes}
    first = "midlayer." if names == "midlayer" else "layers.0."
    tensors = {"fc.weight": make(WIDTH, reads * WIDTH), **make.layer(first, inputs=2 * WIDTH)}
    for name in ("hidden_norm", "input_layernorm"):
        tensors[f"{first}{name}.weight"] = make.norm(WIDTH)
    for number in range(1, layers):
        tensors |= make.layer(f"layers.{number}.")
        tensors[f"layers.{number}.input_layernorm.weight"] = make.norm(WIDTH)
    tensors |= {"norm.weight": make.norm(WIDTH), "lm_head.weight": make(known, WIDTH, scale=6.0)}
    if config.get("norm_before_fc"):
        tensors["input_norm.weight"] = make.norm(reads * WIDTH)
    if config.get("fc_norm"):
        tensors |= {f"fc_norm.{n}.weight": make.norm(WIDTH) for n in range(reads)}
    if config.get("mask_token_id") is not None:
        tensors["mask_hidden"] = make(1, 1, reads * WIDTH, scale=3.0)
    if embedding:
        tensors["embed_tokens.weight"] = make(size, WIDTH, scale=2.0)
    if reduced:
        tokens = some_tokens(size=size)
        tensors["d2t"] = tokens - torch.arange(known)
        tensors["t2d"] = torch.zeros(size, dtype=torch.bool).index_fill(0, tokens, True)
    return Stored(config, tensors)


def speculators_form(stored: Stored, kind: str) -> Stored:
    """The same with its sizes under `transformer_layer_config`, as `speculators` writes it."""
    keys = {key for key in stored.config if key in LAYERS}
    inner = {key: stored.config[key] for key in keys}
    outer = {key: x for key, x in stored.config.items() if key not in keys}
    return Stored(
        {**outer, "architectures": ["Eagle3Speculator"], "speculators_model_type": kind,
         "transformer_layer_config": inner},
        stored.tensors,
    )  # fmt: skip


def eagle1(layers: int = 1) -> Stored:
    """EAGLE-1 and EAGLE-2: no norm before the first attention, none at the end."""
    make = Random(2)
    config = {
        **LAYERS, "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": layers,
    }  # fmt: skip
    tensors = {"fc.weight": make(WIDTH, 2 * WIDTH), "fc.bias": make(WIDTH)}
    tensors["embed_tokens.weight"] = make(VOCABULARY, WIDTH, scale=2.0)
    tensors |= make.layer("layers.0.")
    for number in range(1, layers):
        tensors |= make.layer(f"layers.{number}.")
        tensors[f"layers.{number}.input_layernorm.weight"] = make.norm(WIDTH)
    return Stored(config, tensors)


def medusa(
    form: str = "original", heads: int = 3, blocks: int = 1, size: int = VOCABULARY
) -> Stored:
    """Medusa by its authors, or by vLLM (without biases)."""
    make, tensors = Random(4), dict[str, Tensor]()
    for head in range(heads):
        for block in range(blocks):
            name = (
                f"{head}.{block}.linear" if form == "original" else f"blocks.{head}.layers.{block}"
            )
            tensors[f"{name}.weight"] = make(WIDTH, WIDTH)
            if form == "original":
                tensors[f"{name}.bias"] = make(WIDTH)
        last = f"{head}.{blocks}.weight" if form == "original" else f"lm_heads.{head}.weight"
        tensors[last] = make(size, WIDTH, scale=6.0)
    if form == "original":
        return Stored(
            {"medusa_num_heads": heads, "medusa_num_layers": blocks, "vocab_size": size}, tensors
        )
    tensors = {
        n: x[some_tokens(size=size)] if n.startswith("lm_h") else x for n, x in tensors.items()
    }
    config = {"model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": WIDTH,
              "num_heads": heads, "num_hidden_layers": blocks, "vocab_size": size,
              "truncated_vocab_size": KNOWN}  # fmt: skip
    return Stored(config, tensors | {"token_map": some_tokens(size=size)})


def hydra(heads: int = 3, blocks: int = 2, size: int = VOCABULARY) -> Stored:
    """Hydra's `mlp` heads."""
    make, tensors = Random(5), dict[str, Tensor]()
    for head in range(heads):
        wide = WIDTH * (head + 2)
        for block in range(blocks):
            name = f"hydra_mlp.{head}.{block}.linear"
            tensors[f"{name}.weight"] = make(WIDTH, WIDTH if block else wide)
            tensors[f"{name}.bias"] = make(WIDTH)
        tensors[f"hydra_mlp.{head}.0.res_connection.weight"] = make(WIDTH, wide)
        tensors[f"hydra_mlp.{head}.0.res_connection.bias"] = make(WIDTH)
        tensors[f"hydra_lm_head.{head}.weight"] = make(size, WIDTH, scale=6.0)
        tensors[f"hydra_lm_head.{head}.bias"] = make(size)
    config = {"hydra_num_heads": heads, "hydra_num_layers": blocks, "hydra_head_arch": "mlp",
              "grounded_heads": True}  # fmt: skip
    return Stored(config, tensors)


def mlp_speculator(steps: int = 3, tied: bool = False, scaled: bool = True) -> Stored:
    """An MLP speculator; of tied weights the file holds copies."""
    make, inner = Random(6), 28
    made: dict[str, list[Tensor]] = {
        "emb.{}.weight": [make(VOCABULARY, inner, scale=4.0) for _ in range(steps)],
        "proj.{}.weight": [make(inner, WIDTH if not k else inner) for k in range(steps)],
        "ln.{}.weight": [make.norm(inner) for _ in range(steps)],
        "ln.{}.bias": [make(inner) for _ in range(steps)],
        "head.{}.weight": [make(VOCABULARY, inner, scale=6.0) for _ in range(steps)],
    }
    tensors = {}
    for name, parts in made.items():
        first = 1 if name.startswith("proj") else 0
        for k, part in enumerate(parts):
            tensors["speculator." + name.format(k)] = parts[min(k, first)] if tied else part
    config = {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator",
              "emb_dim": WIDTH, "inner_dim": inner, "n_predict": steps, "vocab_size": VOCABULARY,
              "tie_weights": tied, "scale_input": scaled}  # fmt: skip
    return Stored(config, {name: tensor.clone() for name, tensor in tensors.items()})


def redrafter(blocks: int = 2) -> Stored:
    """Apple's recurrent drafter."""
    make, twice = Random(7), 2 * WIDTH
    tensors = {"rnn_u.weight": make(WIDTH, WIDTH), "rnn_u.bias": make(WIDTH)}
    tensors["rnn_w.weight"] = make(WIDTH, WIDTH, scale=4.0)
    for block in range(blocks):
        tensors[f"lm_head.{block}.linear.weight"] = make(twice, twice)
        tensors[f"lm_head.{block}.linear.bias"] = make(twice)
    tensors[f"lm_head.{blocks}.weight"] = make(VOCABULARY, twice, scale=6.0)
    config = {"model_type": "recurrent_drafting_drafter", "hidden_size": WIDTH, "exit_dim": twice,
              "num_draft_layers": blocks, "rnn": True, "vocab_size": VOCABULARY}  # fmt: skip
    return Stored(config, tensors)


def dflash(block: int = 4, layers: int = 2, size: int = VOCABULARY, **changes: Any) -> Stored:
    """DFlash by its authors: Qwen3 layers, two states of the target."""
    make = Random(8)
    ids = {"mask_token_id": size - 1, "target_layer_ids": [1, 3]}
    config = {**LAYERS, "vocab_size": size, "model_type": "qwen3", "num_hidden_layers": layers}
    config |= {"architectures": ["DFlashDraftModel"], "block_size": block, "dflash_config": ids}
    config |= changes
    tensors = {"fc.weight": make(WIDTH, 2 * WIDTH, scale=2.0)}
    tensors |= {"hidden_norm.weight": make.norm(WIDTH), "norm.weight": make.norm(WIDTH)}
    for number in range(layers):
        tensors |= make.layer(f"layers.{number}.", head_norms=True)
        tensors[f"layers.{number}.input_layernorm.weight"] = make.norm(WIDTH)
    return Stored(config, tensors)


def blockwise(heads: int = 3) -> Stored:
    """Hidden layers of blockwise parallel decoding."""
    make, tensors = Random(14), dict[str, Tensor]()
    for head in range(heads):
        tensors |= {f"{head}.0.weight": make(INNER, WIDTH), f"{head}.0.bias": make(INNER)}
        tensors |= {f"{head}.2.weight": make(WIDTH, INNER), f"{head}.2.bias": make(WIDTH)}
    return Stored({"blockwise_num_heads": heads, "blockwise_hidden_size": INNER}, tensors)


def cerberus(heads: int = 3, blocks: int = 2) -> Stored:
    """Cerberus: blocks read the state of the head before beside their own."""
    make, tensors = Random(12), dict[str, Tensor]()
    for head in range(heads):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = make(WIDTH, 2 * WIDTH)
            tensors[f"{head}.{block}.linear.bias"] = make(WIDTH)
        tensors[f"{head}.{blocks}.weight"] = make(VOCABULARY, WIDTH, scale=6.0)
    return Stored({"cerberus_num_heads": heads, "cerberus_num_layers": blocks}, tensors)


def parallel_layers(heads: int = 3, size: int = VOCABULARY) -> Stored:
    """Layers beside the target's last one, one for each further token."""
    make, tensors = Random(13), dict[str, Tensor]()
    for head in range(heads):
        tensors |= make.layer(f"extra_heads.{head}.")
        tensors[f"extra_heads.{head}.input_layernorm.weight"] = make.norm(WIDTH)
    return Stored({**LAYERS, "vocab_size": size, "n_future_tokens": heads + 1}, tensors)


def kangaroo(layer: int = 2, size: int = VOCABULARY) -> Stored:
    """Kangaroo's adapter on the state after an early layer."""
    make = Random(9)
    tensors = {n: x for n, x in make.layer("layers.0.").items() if "self_attn" in n}
    tensors["layers.0.input_layernorm.weight"] = make.norm(WIDTH)
    return Stored(
        {**LAYERS, "vocab_size": size, "model_type": "kangaroo", "exit_layer": layer},
        tensors | {"norm.weight": make.norm(WIDTH)},
    )


def modules(
    form: str, count: int, layers: int, size: int = VOCABULARY, inner: int = 48
) -> dict[str, Tensor]:
    """Tensors of modules in a target's checkpoint, by DeepSeek, MiMo or Qwen3-Next."""
    tensors: dict[str, Tensor] = {}
    make = Random(10)
    names = {
        "deepseek": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
        "mimo": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
        "qwen": ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
    }[form]
    for index in range(count):
        start = {"mimo": f"model.mtp_layers.{index}.", "qwen": "mtp."}.get(form)
        start = start or f"model.layers.{layers + index}."
        token, state, join, last = (f"{start}{name}.weight" for name in names)
        tensors |= {token: make.norm(WIDTH), state: make.norm(WIDTH), last: make.norm(WIDTH)}
        tensors[join] = make(WIDTH, 2 * WIDTH)
        layer = f"{start}layers.{index}." if form == "qwen" else start
        tensors |= make.layer(layer, inner=inner) | {
            f"{layer}input_layernorm.weight": make.norm(WIDTH)
        }
        if form == "deepseek":
            tensors[f"{start}shared_head.head.weight"] = make(size, WIDTH, scale=6.0)
            tensors[f"{start}embed_tokens.weight"] = make(size, WIDTH, scale=2.0)
    return tensors


def look_ahead_tokens(count: int = 3, size: int = VOCABULARY) -> Stored:
    """Trained embeddings at slots of the target, in our own form."""
    config = {
        "model_type": "look_ahead_tokens", "num_look_ahead_tokens": count, "hidden_size": WIDTH,
        "vocab_size": size,
    }  # fmt: skip
    return Stored(config, {"slots.weight": Random(12)(count, WIDTH, scale=3.0)})


def skipping_tokens(count: int = 3, layer: int = 1, size: int = VOCABULARY) -> Stored:
    """The same for passes without a layer of the target."""
    stored = look_ahead_tokens(count, size)
    return Stored({**stored.config, "skipped_layers": [layer]}, stored.tensors)


def streams(
    count: int = 3, layer: int = 2, layers: int = 4, size: int = VOCABULARY, adapters: int = 2
) -> Stored:
    """Streams of rank 5 into a target of so many layers, with adapters of some rank or none."""
    make, behind = Random(18), layers - layer
    config = {**LAYERS, **look_ahead_tokens(count, size).config, "transfer_layer": layer}
    config |= {"stream_rank": 5, "adapter_rank": adapters}
    tensors = {
        "slots.weight": make(count, WIDTH, scale=3.0),
        "map_down": make(5, WIDTH), "map_up": make(WIDTH, 5),
    }  # fmt: skip
    for part, (given, made) in {"qkv": (WIDTH, 64), "output": (32, WIDTH)}.items():
        if adapters:
            tensors[f"adapters.{part}_down"] = make(behind, adapters, given, scale=2.0)
            tensors[f"adapters.{part}_up"] = make(behind, made, adapters, scale=2.0)
    return Stored(config, tensors)


def bita(count: int = 3, layers: int = 4, prompt: int = 5, size: int = VOCABULARY) -> Stored:
    """Masks, and a soft prompt in each layer of a target."""
    make, stored = Random(21), look_ahead_tokens(count, size)
    keys = {f"adapters.prompt_{n}": make(layers, prompt, 16, scale=6.0) for n in ("keys", "values")}
    config = {**LAYERS, **stored.config, "soft_prompt_tokens": prompt}
    return Stored(config, stored.tensors | keys)


def hidden_transfer(count: int = 3, layer: int = 2, size: int = VOCABULARY) -> Stored:
    """Maps of a node's state before a layer to those of slots below it."""
    maps = Random(13)(count, WIDTH, WIDTH) + torch.eye(WIDTH, dtype=torch.float64)
    config = {**look_ahead_tokens(count, size).config, "transfer_layer": layer}
    return Stored(config, {"slots.weight": maps})
