"""Master weights, their optimiser, and their two other forms: bf16 leaves and a checkpoint folder.

Masters are fp32, matrices of one kind stacked over layers (``q`` is ``[layers, out, in]``). The
stacked matrices are trained with Muon (orthogonalised momentum, Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon/), for the few tokens a short training has; embedding and
norms with AdamW.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recipe import store
from recipe.nets import Shape

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
_HF = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
    "down": "mlp.down_proj", "norm1": "input_layernorm", "norm2": "post_attention_layernorm",
}  # fmt: skip


def initial(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Fresh masters: normal weights, projections back to the residual stream scaled by depth."""
    rng = torch.Generator().manual_seed(seed)
    size = {
        "q": (shape.heads * shape.head_dim, shape.hidden),
        "k": (shape.kv_heads * shape.head_dim, shape.hidden),
        "v": (shape.kv_heads * shape.head_dim, shape.hidden),
        "o": (shape.hidden, shape.heads * shape.head_dim),
        "gate": (shape.intermediate, shape.hidden),
        "up": (shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }
    masters = {"embed": torch.randn(shape.vocab, shape.hidden, generator=rng) * 0.02}
    for name in MATRICES:
        scale = 0.03 / (2 * shape.layers) ** 0.5 if name in ("o", "down") else 0.03
        masters[name] = torch.randn(shape.layers, *size[name], generator=rng) * scale
    masters["norm1"] = torch.ones(shape.layers, shape.hidden)
    masters["norm2"] = torch.ones(shape.layers, shape.hidden)
    masters["norm"] = torch.ones(shape.hidden)
    return masters


def make_leaves(masters: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The bf16 tensors the forward pass reads and the backward pass fills gradients of."""
    leaves = {"embed": masters["embed"], "norm": masters["norm"]}
    for i in range(layers):
        leaves[f"{i}.qkv"] = torch.cat([masters[n][i] for n in ("q", "k", "v")])
        leaves[f"{i}.gu"] = torch.cat([masters[n][i] for n in ("gate", "up")])
        for name in ("o", "down", "norm1", "norm2"):
            leaves[f"{i}.{name}"] = masters[name][i]
    return {n: t.detach().to(torch.bfloat16).requires_grad_() for n, t in leaves.items()}


def gather_grads(
    leaves: dict[str, Tensor], masters: dict[str, Tensor], layers: int
) -> dict[str, Tensor]:
    """fp32 gradients in the masters' layout; a leaf that took no part counts as zero."""

    def grad(name: str) -> Tensor:
        found = leaves[name].grad
        return torch.zeros_like(leaves[name]) if found is None else found

    out = {n: grad(n).float() for n in ("embed", "norm")}
    for name in ("o", "down", "norm1", "norm2"):
        out[name] = torch.stack([grad(f"{i}.{name}") for i in range(layers)]).float()
    for fused, names in (("qkv", ("q", "k", "v")), ("gu", ("gate", "up"))):
        stacked = torch.stack([grad(f"{i}.{fused}") for i in range(layers)]).float()
        parts = stacked.split([masters[n].shape[1] for n in names], dim=1)
        out.update(zip(names, parts, strict=True))
    return out


def orthogonalise(matrices: Tensor) -> Tensor:
    """Quintic Newton-Schulz iteration towards ``U V^T``, batched over the first dimension."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(-1, -2) if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(-1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    out: Tensor = x.transpose(-1, -2) if tall else x
    return out


class Optimiser:
    """Muon for stacked matrices, AdamW for the rest; state is a flat dict of tensors."""

    def __init__(self, masters: dict[str, Tensor]) -> None:
        self.masters = masters
        self.count = 0
        self.state: dict[str, Tensor] = {}
        for name, tensor in masters.items():
            for slot in ("m",) if name in MATRICES else ("m", "v"):
                self.state[f"{slot}.{name}"] = torch.zeros_like(tensor)

    @torch.no_grad()
    def step(self, grads: dict[str, Tensor], muon: float, adam: float, decay: float) -> None:
        """One update with learning rates ``muon`` (matrices) and ``adam`` (the rest)."""
        self.count += 1
        for name, grad in grads.items():
            if name in MATRICES:
                self._muon(name, grad, muon, decay)
            else:
                self._adam(name, grad, adam)

    def _muon(self, name: str, grad: Tensor, rate: float, decay: float) -> None:
        master, moment = self.masters[name], self.state[f"m.{name}"]
        moment.lerp_(grad, 0.05)
        update = orthogonalise(grad.lerp(moment, 0.95)).float()
        scale = max(1.0, master.shape[1] / master.shape[2]) ** 0.5
        master.mul_(1 - rate * decay).add_(update, alpha=-rate * scale)

    def _adam(self, name: str, grad: Tensor, rate: float) -> None:
        first, second = self.state[f"m.{name}"], self.state[f"v.{name}"]
        first.lerp_(grad, 0.1)
        second.mul_(0.95).addcmul_(grad, grad, value=0.05)
        size = second.div(1 - 0.95**self.count).sqrt_().add_(1e-8)
        self.masters[name].addcdiv_(first, size, value=-rate / (1 - 0.9**self.count))


def hf_state(masters: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The masters as the bf16 state dict of ``LlamaForCausalLM`` (tied head left out)."""
    out = {"model.embed_tokens.weight": masters["embed"], "model.norm.weight": masters["norm"]}
    for i in range(layers):
        for name, path in _HF.items():
            out[f"model.layers.{i}.{path}.weight"] = masters[name][i]
    return {n: t.to(torch.bfloat16).contiguous() for n, t in out.items()}


def from_hf_state(state: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The inverse of :func:`hf_state`, in fp32."""
    masters = {
        "embed": state["model.embed_tokens.weight"].float(),
        "norm": state["model.norm.weight"].float(),
    }
    for name, path in _HF.items():
        stack = [state[f"model.layers.{i}.{path}.weight"] for i in range(layers)]
        masters[name] = torch.stack(stack).float()
    return masters


def hf_config(shape: Shape) -> dict[str, Any]:
    """``config.json`` of a stock Llama model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "dtype": "bfloat16",
    }


def export(masters: dict[str, Tensor], shape: Shape, folder: Path) -> None:
    """Write weights and configs of a checkpoint folder (the tokenizer is written elsewhere)."""
    store.write_json(folder / "config.json", hf_config(shape))
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    store.write_json(folder / "generation_config.json", {"do_sample": False, **ids})
    state = hf_state(masters, shape.layers)
    store.write_tensors(folder / "model.safetensors", state, {"format": "pt"})
