"""The kernels as torch ops, which `torch.export` and Inductor carry: one name, the form by device.

On a CUDA device an op launches a kernel of ours, and Inductor compiles that kernel into what it
makes; elsewhere it is plain torch, which Inductor fuses as any other. triton is imported where the
first kernel is launched.
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from specplan.backends.kernels import torch_forms
from specplan.backends.kernels.variants import RULES
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.acceptance import DraftedTree, Judged


@torch.library.triton_op("specplan::tree_attention", mutates_args=())
def tree_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    prefix: Tensor,
    seen: Tensor,
    pages: Tensor | None,
    scale: float,
    splits: int = 0,
) -> Tensor:
    """Attention of some queries per row to a cache: all of a prefix, some of the slots after it.

    Args:
        query: `[B, H, T, D]`; head h reads key/value head h // (H / H_kv).
        keys: `[B, H_kv, S, D]`, or `[P, H_kv, page, D]` with `pages`.
        values: as `keys`.
        prefix: int64 `[B]`, at most S: every query sees the slots below it; may be negative.
        seen: bool `[B or 1, T, W]`: whether query t sees slot prefix + w; slots beyond see none.
        pages: int32 `[B, n]`, where slots `i * page ...` of each row lie; None for rows as such.
        scale: factor of the scores.
        splits: parts that the context is cut into, a power of two up to 64; 0 lets the device say.
            The plain form has no parts.

    Returns:
        `[B, H, T, D]`; 0 for a query that sees no slot.

    Raises:
        UsageError: shapes do not fit each other.
        MissingCapabilityError: on CUDA, triton is missing or has no kernel for the head size.
    """
    _check(query, keys, values, seen, pages)
    return _forms(query).tree_attention(query, keys, values, prefix, seen, pages, scale, splits)  # type: ignore[no-any-return]


@torch.library.triton_op("specplan::rotate_and_store", mutates_args={"keys", "values"})
def rotate_and_store(
    joined: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """Turn queries and keys by their positions; put keys and values into a cache.

    Args:
        joined: `[B, T, H + 2 H_kv, D]`, contiguous: queries, keys, values.
        cos: `[B, T, 1, D]`, contiguous.
        sin: `[B, T, 1, D]`, contiguous, its first half negated.
        slots: int64 `[B, T]`, contiguous.
        keys: `[B, H_kv, S, D]`, a slot's entries next to each other.
        values: as `keys`.

    Returns:
        Turned queries `[B, H, T, D]`.

    Raises:
        MissingCapabilityError: on CUDA, triton is missing.
    """
    return _forms(joined).rotate_and_store(joined, cos, sin, slots, keys, values)  # type: ignore[no-any-return]


@torch.library.triton_op("specplan::rms_norm", mutates_args=())
def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root mean square norm (arXiv 1910.07467) over the last dimension.

    Args:
        hidden: `[..., D]`.
        weight: `[D]`, contiguous.
        epsilon: added to the mean square.

    Returns:
        As `hidden`, contiguous.

    Raises:
        MissingCapabilityError: on CUDA, triton is missing.
    """
    return _forms(hidden).rms_norm(hidden, weight, epsilon)  # type: ignore[no-any-return]


@torch.library.triton_op("specplan::gated_silu", mutates_args=())
def gated_silu(joined: Tensor) -> Tensor:
    """SiLU of the first half of the last dimension times the second (arXiv 2002.05202).

    Args:
        joined: `[..., 2 D]`.

    Returns:
        `[..., D]`, contiguous.

    Raises:
        MissingCapabilityError: on CUDA, triton is missing.
    """
    return _forms(joined).gated_silu(joined)  # type: ignore[no-any-return]


@torch.library.triton_op("specplan::accept", mutates_args=())
def accept_tensors(
    rule: str,
    tokens: Tensor,
    parents: Tensor,
    live: Tensor,
    target: Tensor,
    laws: Tensor | None,
    law_index: Tensor | None,
    uniforms: Tensor | None,
    levels: int,
    widest: int,
    distinct: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """`accept`, on tensors alone.

    Args:
        rule: one of `RULES`.
        tokens: int64 `[B, N]`, N at least 1.
        parents: int64 `[B, N]`.
        live: bool `[B, N]`.
        target: logits (`greedy`) or laws `[B, N + 1, V]`.
        laws: `[B, Q, V]`.
        law_index: int64 `[B, N]`.
        uniforms: float64 `[B, N + 1]`; None for `greedy`.
        levels: no fewer than the deepest path has.
        widest: no fewer than a node has children.
        distinct: see `DraftedTree`.

    Returns:
        The fields of `Judged`.
    """
    tree = DraftedTree(tokens, parents, live, laws, law_index, distinct, levels, widest)
    judged: Judged = _forms(target).accept(rule, tree, target, uniforms)
    if target.device.type == "cuda":
        return judged.path, judged.accepted, judged.bonus
    return judged.path.clone(), judged.accepted.clone(), judged.bonus.clone()


@torch.library.custom_op("specplan::move_slots", mutates_args=("caches",))
def move_slots(
    caches: list[Tensor],
    source: Tensor,
    destination: Tensor,
    live: Tensor,
    pages: Tensor | None = None,
) -> None:
    """Copy slots of caches to other slots of the same row, in place: reads all, then writes.

    Args:
        caches: `[B, H, S, D]`, or `[P, H, page, D]` with `pages`; all of one shape, layout and
            type, a slot's entries next to each other and a multiple of 4 bytes.
        source: int64 `[B, M]`, slots to read.
        destination: int64 `[B, M]`, slots to write; distinct within a row where live.
        live: bool `[B, M]`; dead lanes move nothing.
        pages: int32 `[B, n]`; no two rows write to one page.
    """
    _forms(caches[0]).move_slots(caches, source, destination, live, pages)


move_slots.register_fake(lambda *_, **__: None)


def accept(rule: str, tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None) -> Judged:
    """Judge a tree, all requests in one launch.

    Args:
        rule: one of `RULES`.
        tree: the drafted nodes; its depth and width are known without a look at the numbers.
        target: logits (`greedy`) or laws `[B, N + 1, V]`.
        uniforms: float64 `[B, N + 1]`; None for `greedy`.

    Raises:
        MissingCapabilityError: the rule has no kernel.
    """
    if rule not in RULES:
        raise MissingCapabilityError(
            f"the acceptance rule '{rule}' has no kernel",
            remedy=f"These have: {', '.join(RULES)}; others run as tensor ops.",
        )
    if not tree.size:
        return torch_forms.accept(rule, tree, target, uniforms)
    levels = tree.size if rule == "token" else tree.depth
    index = None if tree.probs is None else tree.probs_tensor()
    path, accepted, bonus = accept_tensors(
        rule, tree.tokens, tree.parent_tensor(), tree.live_mask(), target, tree.probs, index,
        uniforms, levels, tree.width, tree.distinct,
    )  # fmt: skip
    return Judged(path, accepted, bonus)


def _forms(tensor: Tensor) -> Any:
    """The module whose functions compute on the device of a tensor."""
    if tensor.device.type != "cuda":
        return torch_forms
    return import_module("specplan.backends.kernels.cuda_forms")  # may need triton


def _check(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, pages: Tensor | None) -> None:
    batch, heads, tokens, head_dim = query.shape
    where = "tree attention"
    if keys.shape != values.shape or keys.shape[3] != head_dim or heads % keys.shape[1]:
        problem = f"keys {list(keys.shape)} and values {list(values.shape)} do not fit the queries"
    elif pages is None and keys.shape[0] != batch:
        problem = f"there are {batch} rows of queries and {keys.shape[0]} of keys"
    elif pages is not None and pages.shape[0] != batch:
        problem = f"there are {batch} rows of queries and {pages.shape[0]} of pages"
    elif seen.shape[0] not in (1, batch) or seen.shape[1] != tokens or not seen.shape[2]:
        problem = f"the mask {list(seen.shape)} does not fit {tokens} queries of {batch} rows"
    else:
        return
    raise UsageError(problem, where=where, remedy="See the shapes in its documentation.")
