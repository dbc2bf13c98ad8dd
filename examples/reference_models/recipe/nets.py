"""A Llama forward pass written for fast training on a few CPU cores.

It computes what ``transformers.LlamaForCausalLM`` computes, on the same weights, and differs only
in how: bf16 throughout with fp32 masters elsewhere, fused projections, attention in query blocks
(half of a causal score matrix is never computed), and a loss that forms its gradient in the
forward pass, chunk by chunk, so that no logits are kept. On two cores this is about four times
faster than the stock modules under autocast.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

QUERY_BLOCK = 128
CHUNK = 1024
EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    """The dimensions of a Llama model with tied embeddings."""

    vocab: int = 3072
    hidden: int = 256
    layers: int = 20
    intermediate: int = 704
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    theta: float = 10000.0
    positions: int = 1024

    def parameters(self) -> int:
        """Number of weights, the tied embedding counted once."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.vocab * self.hidden + self.layers * layer + self.hidden


def keep_memory() -> None:
    """Ask glibc to keep freed memory: fresh pages for every activation cost a third of a step."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 30)
        libc.mallopt(-1, (1 << 31) - 1)
    except (OSError, AttributeError):
        return


class _Norm(torch.autograd.Function):
    """RMSNorm in few passes over memory (the composite one upcasts and keeps six tensors)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        width = x.shape[-1]
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32).square_()
        scale = square.div_(width).add_(EPS).rsqrt_().to(x.dtype)
        normed = x * scale
        ctx.save_for_backward(normed, scale, weight)
        out: Tensor = normed * weight
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor]:
        grad = grads[0]
        normed, scale, weight = ctx.saved_tensors
        d_weight = (grad * normed).reshape(-1, weight.numel()).sum(0)
        d_normed = grad * weight
        mean = (d_normed * normed).mean(-1, keepdim=True)
        d_x: Tensor = torch.addcmul(d_normed, normed, mean, value=-1).mul_(scale)
        return d_x, d_weight


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """Root-mean-square norm."""
    out: Tensor = _Norm.apply(x, weight)  # type: ignore[no-untyped-call]
    return out


class _TokenLoss(torch.autograd.Function):
    """Mean cross entropy of a tied head against token ids; gradients formed chunk by chunk."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
        count = hidden.shape[0]
        d_hidden = torch.empty_like(hidden)
        d_head = torch.zeros(head.shape, dtype=torch.float32)
        total = torch.zeros(())
        for s in range(0, count, CHUNK):
            part, wanted = hidden[s : s + CHUNK], targets[s : s + CHUNK, None]
            logits = (part @ head.t()).float()
            logits.sub_(logits.amax(-1, keepdim=True))
            picked = logits.gather(1, wanted)
            mass = logits.exp_().sum(-1, keepdim=True)
            total += (mass.log() - picked).sum()
            logits.div_(mass.mul_(count))
            logits.scatter_add_(1, wanted, torch.full_like(mass, -1.0 / count))
            grad = logits.to(hidden.dtype)
            d_hidden[s : s + CHUNK] = grad @ head
            d_head += grad.t() @ part
        ctx.save_for_backward(d_hidden, d_head.to(head.dtype))
        return total / count

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        d_hidden, d_head = ctx.saved_tensors
        return d_hidden * grads[0], d_head * grads[0], None


def token_loss(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of ``hidden @ head.T`` against ``targets`` (both flattened over tokens)."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    out: Tensor = _TokenLoss.apply(flat, head, targets.reshape(-1))  # type: ignore[no-untyped-call]
    return out


def rotary(shape: Shape, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions, as Llama lays them out."""
    steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angle = torch.arange(length, dtype=torch.float32)[:, None] * (shape.theta**-steps)[None]
    angle = torch.cat((angle, angle), -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention over ``[heads, tokens, head_dim]`` in blocks of queries."""
    length, scale = q.shape[1], q.shape[-1] ** -0.5
    mask = torch.full((length, length), float("-inf"), dtype=q.dtype).triu_(1)
    out = []
    for s in range(0, length, QUERY_BLOCK):
        e = min(s + QUERY_BLOCK, length)
        scores = torch.baddbmm(mask[s:e, :e], q[:, s:e], k[:, :e].transpose(1, 2), alpha=scale)
        out.append(torch.bmm(torch.softmax(scores, -1), v[:, :e]))
    return torch.cat(out, 1)


def layer(
    x: Tensor, weights: dict[str, Tensor], shape: Shape, turn: tuple[Tensor, Tensor]
) -> Tensor:
    """One decoder layer. ``weights``: ``norm1 norm2 qkv o gu down`` (fused projections)."""
    rows, length, _ = x.shape
    heads, groups, width = shape.heads, shape.kv_heads, shape.head_dim
    qkv = F.linear(norm(x, weights["norm1"]), weights["qkv"])
    q, k, v = qkv.split((heads * width, groups * width, groups * width), -1)
    q = q.view(rows, length, heads, width).transpose(1, 2)
    k = k.view(rows, length, groups, width).transpose(1, 2)
    v = v.view(rows, length, groups, width).transpose(1, 2)
    q, k = _rotate(q, *turn), _rotate(k, *turn)
    k = k.repeat_interleave(heads // groups, 1)
    v = v.repeat_interleave(heads // groups, 1)
    flat = (rows * heads, length, width)
    mixed = attention(q.reshape(flat), k.reshape(flat), v.reshape(flat))
    mixed = mixed.view(rows, heads, length, width).transpose(1, 2)
    x = x + F.linear(mixed.reshape(rows, length, heads * width), weights["o"])
    gate, up = F.linear(norm(x, weights["norm2"]), weights["gu"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, weights["down"])


def forward(
    ids: Tensor,
    leaves: dict[str, Tensor],
    shape: Shape,
    skipped: frozenset[int] = frozenset(),
) -> list[Tensor]:
    """The residual stream after every layer, ``out[l]`` after layer ``l`` (before the final norm).

    ``skipped`` layers are left out, as stochastic depth does.
    """
    turn = rotary(shape, ids.shape[1], leaves["embed"].dtype)
    x = F.embedding(ids, leaves["embed"])
    out = []
    for i in range(shape.layers):
        if i not in skipped:
            names = ("norm1", "norm2", "qkv", "o", "gu", "down")
            x = layer(x, {n: leaves[f"{i}.{n}"] for n in names}, shape, turn)
        out.append(x)
    return out
