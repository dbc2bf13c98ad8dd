"""Trees and numbers that go from round to round, as tensors of the interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.batch import Batch
from specplan.backends.ops.load import stored_tree
from specplan.backends.ops.tensors.trees import first_columns, selected
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.plan import ValueState
from specplan.ir.types.state_types import loaded_type
from specplan.ir.types.value_types import TreeType
from specplan.runtime.models.modules import Module

Parts: TypeAlias = tuple[Tensor, ...]


def value_parts(state: ValueState, scored: bool) -> tuple[str, ...]:
    """What each tensor of a value state holds; of trees, fields of `Tree`.

    Keys and depths follow from them, and from the text as it is when they are loaded.
    """
    kind = loaded_type(state, state.name)
    if not isinstance(kind, TreeType):
        return ("value",)
    shape = ("parents",) if kind.parents is None else ()
    probs = ("probs_row", "probs") if state.keeps_probs else ()
    scores = ("own", "scores") if scored else ()
    return ("tokens", "live", *shape, *probs, *scores)


def first_values(batch: Batch, analysis: PlanAnalysis, target: Module) -> dict[str, Parts]:
    """What a new batch's value states hold, by name."""
    shape = (batch.size, target.vocab_size)
    probs = torch.zeros(shape, dtype=target.logits_dtype, device=batch.device)
    values = {}
    for state in analysis.plan.states:
        if isinstance(state, ValueState):
            names = value_parts(state, analysis.scored)
            parts = parts_of(batch.values[state.name], names, probs)
            values[str(state.name)] = tuple(part.to(batch.device) for part in parts)
    return values


def parts_of(value: Tree | Tensor, names: Sequence[str], like: Tensor) -> Parts:
    """A value as tensors.

    Args:
        value: what is stored.
        names: see `value_parts`.
        like: of which type probabilities are, `[B, V]`.
    """
    if isinstance(value, Tensor):
        return (value,)
    if value.chain and not value.in_order:
        inner = value.live[:, 1:]
        order, live = first_columns(inner, value.size, value.depths[:, 1:])
        value = selected(value, order + 1, live, levels=value.levels)
    probs = value.all_probs
    if probs is None:
        probs = like[:, None].expand(-1, value.size, -1) * 0
    fields = {name: probs if name == "probs" else getattr(value, name) for name in names}
    return tuple(field.contiguous() for field in fields.values())


def value_of(state: ValueState, names: Sequence[str], parts: Sequence[Tensor]) -> Tree | Tensor:
    """What the tensors of a value state mean; copies, as the round writes over them."""
    kind = loaded_type(state, state.name)
    if not isinstance(kind, TreeType):
        return parts[0].clone()
    copied: dict[str, Any] = dict(zip(names, (part.clone() for part in parts), strict=True))
    if "probs" in copied:
        copied["probs"] = (copied["probs"],)
    return stored_tree(kind, **copied)
