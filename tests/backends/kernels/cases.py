"""Random inputs of the kernels, from a seed."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance import DraftedTree


def attention_case(
    seed: int,
    *,
    batch: int,
    kv_heads: int,
    group: int,
    tokens: int,
    head_dim: int,
    slots: int,
    window: int,
    page: int = 0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, float]:
    """Arguments of `tree_attention` up to the scale; some queries may see nothing of the window."""
    random = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, tokens, kv_heads * group, head_dim, generator=random)
    shape, pages = (batch, kv_heads, slots, head_dim), None
    if page:
        count = -(-slots // page)
        shape = (batch * count + 2, kv_heads, page, head_dim)
        pages = torch.randperm(shape[0], generator=random)[: batch * count].view(batch, count).int()
    keys, values = (torch.randn(shape, generator=random).to(dtype) for _ in range(2))
    prefix = torch.randint(1 - window, slots - window + 1, (batch,), generator=random)
    seen = torch.rand(batch, tokens, window, generator=random) < 0.5
    return query.to(dtype).transpose(1, 2), keys, values, prefix, seen, pages, head_dim**-0.5


def tree_case(seed: int, *, chain: bool, batch: int = 3) -> tuple[DraftedTree, Tensor, Tensor]:
    """A drafted tree of any shape, laws of the target with ties, and uniforms."""
    random = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=random))

    nodes, vocabulary, rows = number(1, 9), number(3, 12), 3
    parents: list[int] = []
    for node in range(nodes):
        parents.append(node - 1 if chain else number(-1, node) if node else -1)
    has_laws, has_dead = number(0, 2), number(0, 2)
    # laws with zeros and ties
    counts = torch.randint(0, 3, (batch, rows, vocabulary), generator=random)
    counts[..., 0] += 1
    target = torch.randint(0, 3, (batch, nodes + 1, vocabulary), generator=random).float()
    target[..., -1] += 1
    tree = DraftedTree(
        tokens=torch.randint(0, vocabulary, (batch, nodes), generator=random),
        parents=tuple(parents),
        live=torch.rand(batch, nodes, generator=random) < 0.8 if has_dead else None,
        probs=counts / counts.sum(-1, keepdim=True) if has_laws else None,
        probs_index=tuple(number(-1, rows) for _ in range(nodes)) if has_laws else None,
        distinct=bool(number(0, 2)),
    )
    uniforms = torch.rand(batch, nodes + 1, generator=random, dtype=torch.float64)
    return tree, target / target.sum(-1, keepdim=True), uniforms


def rotation_case(
    seed: int,
    *,
    batch: int,
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    slots: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Arguments of `rotate_and_store`; a row's slots differ."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    angles = normal(batch, tokens, 1, head_dim)
    places = [torch.randperm(slots, generator=random)[:tokens] for _ in range(batch)]
    return (
        normal(batch, tokens, heads + 2 * kv_heads, head_dim), angles.cos(), angles.sin(),
        torch.stack(places), *(normal(batch, kv_heads, slots, head_dim) for _ in range(2)),
    )  # fmt: skip
