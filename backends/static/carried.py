"""A graph's ops on trees that go from round to round; their shape is the same for all requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.reference import carried_ops, carrying
from specplan.backends.reference.batch import Batch
from specplan.backends.reference.values import (
    Tree,
    held_as,
    live_mask,
    shared_by_all,
)
from specplan.backends.static.interface import value_parts
from specplan.backends.static.values import Path, Scope
from specplan.ir.ops import Load, Place, Relabel, Reroot, Store, When
from specplan.ir.plan import StateDeclaration, ValueState
from specplan.runtime.models import CausalModel

if TYPE_CHECKING:
    from specplan.backends.static.tracing import RoundRun


def first_parts(
    batch: Batch, states: Iterable[StateDeclaration], target: CausalModel
) -> dict[str, tuple[Tensor, ...]]:
    """What a new batch's value states hold, by name, as `RoundTensors` has it."""
    found: dict[str, tuple[Tensor, ...]] = {}
    for state in states:
        if isinstance(state, ValueState):
            held = batch.values[state.name]
            if isinstance(held, Tree):
                shape = (*held.tokens.shape, target.vocab_size)
                laws = held.tokens.new_zeros(shape, dtype=target.logits_dtype)
                parts = (held.tokens, live_mask(held), laws)
                found[state.name] = parts[: len(value_parts(state))]
            elif isinstance(held, Tensor):
                found[state.name] = (held.to(target.device),)
    return found


def load(run: RoundRun, op: Load, scope: Scope) -> None:
    """What the last round left; a copy, as `store` writes over it."""
    held = tuple(part.clone() for part in run.given.values[op.state])
    shape = _empty(run, op.state)
    if isinstance(shape, Tree):
        tokens, live, *drawn = held
        tree = replace(shape, tokens=tokens, live=live)
        if drawn:
            tree = replace(tree, laws=drawn[0], law_index=tuple(range(tree.size)))
        scope[op.results[0]] = run.apart(tree)
    else:
        scope[op.results[0]] = held[0]


def store(run: RoundRun, op: Store, scope: Scope) -> None:
    """Leave a number, or a tree, for the next round."""
    held, shape = scope[op.value], _empty(run, op.state)
    if isinstance(held, Tree) and isinstance(shape, Tree):
        held = carrying.filled_to(held, shape)
        left = [held.tokens, live_mask(held)]
        if held.laws is not None and len(run.given.values[op.state]) > len(left):
            index = torch.tensor(shared_by_all(held.law_index), device=held.tokens.device)
            left.append(held.laws[:, index.clamp(min=0)])
    else:
        left = [held_as(scope, op.value, Tensor)]
    for known, new in zip(run.given.values[op.state], left, strict=True):
        known.copy_(new)


def reroot(run: RoundRun, op: Reroot, scope: Scope) -> None:
    """What is left below the emitted path."""
    tree, path = held_as(scope, op.tree, Tree), held_as(scope, op.path, Path)
    scope[op.results[0]] = run.apart(carrying.reroot(tree, path.tokens, path.count, op.nodes))


def _empty(run: RoundRun, name: str) -> Tree | Tensor:
    """What a value state holds before the first round."""
    (state,) = (one for one in run.graph.plan.states if one.name == name)
    assert isinstance(state, ValueState)
    text = run.given.text
    held = carrying.first_value(state, text.shape[0], text.device)
    assert isinstance(held, Tree | Tensor)
    return held


CARRIED: dict[type, Callable[[Any, Any, Scope], None]] = {
    Load: load,
    Store: store,
    Place: carried_ops.place,
    Relabel: carried_ops.relabel,
    Reroot: reroot,
    When: carried_ops.when,
}
"""By op; called with the run, the op and the values so far, to which results are added."""
