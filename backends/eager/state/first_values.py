"""What tracks and values hold of requests that begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specplan.backends.eager.state.rows import exchanged
from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.load import stored_tree
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.plan import TrackState, ValueState
from specplan.ir.types.state_types import loaded_type
from specplan.ir.types.value_types import TreeType
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request


def first_track(state: TrackState, model: Module, requests: Sequence[Request], slots: int) -> Track:
    """A track without states, but for those that come with the requests.

    Args:
        state: its declaration.
        model: whose states.
        requests: one per row.
        slots: tokens of text that it has room for.
    """
    parts = len(state.layer) if isinstance(state.layer, tuple) else 1
    shape = (len(requests), slots + 1, parts * model.hidden_size)
    track = Track.empty(shape, model.dtype, model.device, state.levels)
    if isinstance(state.layer, str) and state.layer != "last":
        outside = model.outside(state.layer, requests)
        track.text = outside[:, None].expand(-1, slots + 1, -1)
        track.known[:] = True
    return track


def first_value(
    state: ValueState, scores: torch.dtype | None, requests: int, device: torch.device
) -> Tree | Tensor:
    """What a value state holds before the first round: a number, or constant tokens.

    A tree without an initial token has no node yet.
    """
    kind = loaded_type(state, state.name)
    if not isinstance(kind, TreeType):
        start = state.kind.get("init", 0.0)
        assert isinstance(start, int | float)
        return torch.full((requests,), float(start), dtype=torch.float64)
    token = state.kind.integer("init", -1)
    shape = (requests, 1 + kind.nodes)
    tokens = torch.full(shape, max(token, 0), device=device)
    live = torch.full(shape, token >= 0, dtype=torch.bool, device=device)
    live[:, 0] = True
    names = () if scores is None else ("own", "scores")
    return stored_tree(kind, tokens, live, **{name: tokens.to(scores) * 0 for name in names})


def exchanged_value(
    state: ValueState, value: Tree | Tensor, stay: Sequence[int], new: int
) -> Tree | Tensor:
    """What a value state holds of the rows that stay, and at first of so many behind them."""
    if isinstance(value, Tensor):
        number = first_value(state, None, new, value.device)
        assert isinstance(number, Tensor)
        return torch.cat([value[list(stay)], number.to(value)])
    scores = None if value.own is None else value.own.dtype
    first = first_value(state, scores, new, value.tokens.device)
    assert isinstance(first, Tree)
    columns: dict[str, Any] = {
        name: torch.cat([own[list(stay)], getattr(first, name).to(own)])
        for name, own in value.changed(lambda field: field).items()
    }
    probs = tuple(exchanged(block, stay, new) for block in value.probs)
    return replace(value, **columns, probs=probs, grown=None, logits=(), noise=())
