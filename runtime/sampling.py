"""From logits to a distribution, from a distribution and uniforms to tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.runtime.requests import Request


@dataclass(frozen=True)
class SamplingSettings:
    """Settings of a batch, one entry per row.

    Attributes:
        temperature: float32 `[B]`; 0 is greedy.
        top_k: int64 `[B]`; 0 is off.
        top_p: float64 `[B]`; 1 is off.
        greedy: every row has temperature 0; on the host.
        truncated: some row has top-k or top-p on; on the host.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    greedy: bool
    truncated: bool

    @classmethod
    def of(
        cls, requests: Sequence[Request], device: str | torch.device = "cpu"
    ) -> SamplingSettings:
        """Stack the settings of requests."""
        return cls(
            temperature=torch.tensor(
                [item.temperature for item in requests], dtype=torch.float32, device=device
            ),
            top_k=torch.tensor([item.top_k for item in requests], device=device),
            top_p=torch.tensor(
                [item.top_p for item in requests], dtype=torch.float64, device=device
            ),
            greedy=all(item.temperature == 0 for item in requests),
            truncated=any(item.top_k > 0 or item.top_p < 1 for item in requests),
        )


def probabilities(logits: Tensor, settings: SamplingSettings) -> Tensor:
    """Probabilities of logits under a request's settings.

    Temperature first, then top-k, then top-p of the rest: the smallest set of likeliest tokens
    whose mass reaches top_p. Among equal logits the lower token id counts as likelier, everywhere.

    Args:
        logits: `[B, R, V]`.
        settings: of the same rows.

    Returns:
        Probabilities `[B, R, V]`, in the dtype of the logits. Temperature 0 is one-hot.
    """
    best = logits.argmax(-1, keepdim=True)
    if settings.greedy:
        return torch.zeros_like(logits).scatter_(-1, best, 1.0)
    temperature = settings.temperature.to(logits.dtype)[:, None, None]
    greedy_rows = temperature == 0
    scores = logits / temperature.where(~greedy_rows, 1.0)
    if settings.truncated:
        scores = _truncate(scores, settings)
    probs = scores.softmax(-1)
    one_hot = torch.zeros_like(logits).scatter_(-1, best, 1.0)
    return torch.where(greedy_rows, one_hot, probs)


def _truncate(scores: Tensor, settings: SamplingSettings) -> Tensor:
    """Set scores outside top-k and top-p to minus infinity."""
    vocabulary = scores.shape[-1]
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    top_k = settings.top_k.where(settings.top_k > 0, vocabulary)[:, None, None]
    rank = torch.arange(vocabulary, device=scores.device)
    ordered = ordered.masked_fill(rank >= top_k, float("-inf"))
    mass = ordered.softmax(-1, dtype=torch.float64)
    before = mass.cumsum(-1) - mass
    top_p = settings.top_p[:, None, None]
    dropped = (before >= top_p) & (top_p < 1) & (rank > 0)
    ordered = ordered.masked_fill(dropped, float("-inf"))
    return torch.empty_like(scores).scatter_(-1, order, ordered)


def draw(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative distribution, in vocabulary order.

    Args:
        probs: `[..., V]`, non-negative, not all zero; need not sum to 1.
        uniforms: `[...]` in [0, 1).

    Returns:
        int64 `[...]`; never a token of probability 0.
    """
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    total = cumulative[..., -1:].contiguous()
    target = uniforms[..., None].to(torch.float64) * total
    token = torch.searchsorted(cumulative, target, right=True)
    last = torch.searchsorted(cumulative, total)
    return token.minimum(last)[..., 0]


def draw_distinct(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Draw without replacement, one uniform each.

    After each draw the token's mass is removed; when no mass is left the remaining draws are
    uniform over the tokens not drawn yet (Sequoia, arXiv 2402.12374, section 3).

    Args:
        probs: `[B, R, V]`.
        uniforms: `[B, R, k]`, k at most V.

    Returns:
        int64 `[B, R, k]`, distinct within a row, in the order drawn.
    """
    count = uniforms.shape[-1]
    left = probs.clone()
    fresh = torch.ones_like(probs)
    tokens = []
    for index in range(count):
        exhausted = left.sum(-1, keepdim=True) <= 0
        token = draw(torch.where(exhausted, fresh, left), uniforms[..., index])
        tokens.append(token)
        if index + 1 < count:
            left.scatter_(-1, token[..., None], 0.0)
            fresh.scatter_(-1, token[..., None], 0.0)
    return torch.stack(tokens, dim=-1)


def best(scores: Tensor, count: int) -> Tensor:
    """The `count` likeliest tokens of each row, likeliest first, lower ids first among equals.

    Args:
        scores: `[B, R, V]`, logits or probabilities.
        count: at most V.

    Returns:
        int64 `[B, R, count]`.
    """
    if count == 1:
        return scores.argmax(-1, keepdim=True)
    if torch.compiler.is_compiling():
        return _best_by_turns(scores, count)
    values, tokens = scores.topk(count, dim=-1)
    # `topk` breaks ties in any order; only when a tie is there is a stable sort worth its time.
    tied = (values[..., 1:] == values[..., :-1]).any() | (
        (scores == values[..., -1:]).sum(-1) > 1
    ).any()
    if not bool(tied):
        return tokens
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def _best_by_turns(scores: Tensor, count: int) -> Tensor:
    """`best` without reading the numbers on the host: `count` times the first maximum."""
    tokens = []
    for index in range(count):
        tokens.append(scores.argmax(-1, keepdim=True))
        if index + 1 < count:
            scores = scores.scatter(-1, tokens[-1], float("-inf"))
    return torch.cat(tokens, -1)
