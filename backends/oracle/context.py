"""What a layer sees: prefixes of the running paths, views, and states from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from specplan.backends.oracle.memory import Memory
from specplan.backends.oracle.stacks import Context
from specplan.ir.blocks import read_heads
from specplan.ir.meaning import Path

if TYPE_CHECKING:
    from specplan.backends.oracle.passes import Pass

States: TypeAlias = dict[Path, Tensor]


def context_of(run: Pass, number: int, states: States, own: Memory) -> Context:
    """Everything that the running paths of a layer see.

    Args:
        run: the pass.
        number: the layer.
        states: of the running paths, those that enter the layer.
        own: what slots left at it, which nothing but deeper slots sees, and what will run again.
    """
    paths = list(states)
    seen: States = {}
    for path in paths:
        for size in range(1, len(path) + 1):
            part = path[:size]
            fact = own.get(number, part, run.op.write)
            fact = run.memory.get(number, part, run.op.write) if fact is None else fact
            if fact is not None:
                seen[part] = fact
    columns = list(seen)
    mask = torch.tensor([[path[: len(one)] == one for one in columns] for path in paths])
    if run.op.attend == "block":
        mask |= torch.tensor([[one in states for one in columns] for _ in paths])
    entered = torch.stack([seen[one] for one in columns])
    source, source_mask = _source(run, number, paths)
    return Context(columns, entered, _by_head(run, number, columns, mask), source, source_mask)


def _source(run: Pass, number: int, paths: Sequence[Path]) -> tuple[Tensor | None, Tensor | None]:
    """States of another model's cache, or from outside, that a layer attends to as well."""
    name = None if run.cache is None else run.cache.reads
    if name is None:
        return None, None
    if name in run.world.outside:
        states = run.world.outside[name]
        return states, torch.ones(len(paths), len(states), dtype=torch.bool)
    facts = run.world.memory[name].exact.get(run.stack.reads_layer(number), {})
    if not facts:
        return None, None
    mask = torch.tensor([[path[: len(one)] == one for one in facts] for path in paths])
    return torch.stack(list(facts.values())), mask


def _by_head(run: Pass, number: int, columns: list[Path], mask: Tensor) -> Tensor:
    """The mask `[H, T, U]`: of the text that a view copied, each head holds its own part.

    By a policy of the pass, streaming heads read the first tokens and the latest ones before the
    root, and what is drafted.
    """
    policy = run.op.policy
    if policy is not None:
        budget, root = policy.integer("budget", 0), len(run.world.text) - 1
        sink = min(policy.integer("sink", 16), budget)
        near = [not sink <= len(one) - 1 < root - budget + sink for one in columns]
        retrieval = read_heads(policy.words("retrieval"))
        streaming = mask & torch.tensor(near)
        heads = range(run.stack.kv_heads)
        return torch.stack([mask if (number, i) in retrieval else streaming for i in heads])
    visible_to = run.memory.visible.get(number)
    if visible_to is None:
        return mask[None]
    masks = []
    for positions in visible_to:
        visible = set(positions)
        holds = [len(one) > run.memory.upto or len(one) - 1 in visible for one in columns]
        masks.append(mask & torch.tensor(holds))
    return torch.stack(masks)
