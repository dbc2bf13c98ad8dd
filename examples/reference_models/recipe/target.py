"""The target: a deep, narrow Llama trained with an early-exit loss.

Every step adds, to the next-token loss of the last layer, the next-token loss of two earlier layers
read through the *shared* final norm and head, with weights that grow with depth; the two rotate
over the layers (LayerSkip's rotational curriculum), and layers are dropped with a small probability
that grows with depth. Source: Elhoushi et al., "LayerSkip: Enabling Early Exit Inference and
Self-Speculative Decoding", 2024, arXiv 2404.16710.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recipe import nets, weights
from recipe.data import WindowOrder
from recipe.loop import Schedule
from recipe.nets import Shape

EXIT_WEIGHT = 0.4
"""Weight of an exit after the last but one layer; an exit after layer ``l`` has ``l/L`` of it."""
LAYER_DROP = 0.05
"""Probability of leaving out the last layer; it grows from zero at the first one."""


def exits_of(step: int, layers: int) -> tuple[int, ...]:
    """The two layers (1-based count of layers run) whose exits take part in a step."""
    half = layers // 2
    low = 1 + step % max(1, half)
    high = half + 1 + step % max(1, layers - half - 1)
    return tuple(sorted({e for e in (low, high) if e < layers}))


def dropped(step: int, layers: int, seed: int) -> frozenset[int]:
    """Layers (0-based) left out in a step; the first and the last one never are."""
    draw = np.random.default_rng([seed, 3, step]).random(layers)
    chance = LAYER_DROP * (np.exp2(np.arange(layers) / max(1, layers - 1)) - 1)
    return frozenset(int(i) for i in np.nonzero(draw < chance)[0] if 0 < i < layers - 1)


@dataclass
class TargetTask:
    """Next-token training with early exits."""

    shape: Shape
    masters: dict[str, Tensor]
    order: WindowOrder
    rows: int
    length: int
    seed: int
    write: Callable[[dict[str, Tensor]], None]

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Round the masters to the bf16 leaves the forward pass uses."""
        self.leaves = weights.make_leaves(self.masters, self.shape.layers)

    def export(self) -> None:
        """Write the present weights."""
        self.write(self.masters)

    def gradients(
        self, step: int, schedule: Schedule
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Loss and gradients of one step."""
        rows, length = self.rows, self.length
        if schedule.long(step):
            rows, length = rows // 2, length * 2
        tokens = self.order.batch(step * self.rows, rows, length)
        layers = self.shape.layers
        skipped = dropped(step, layers, self.seed)
        stream = nets.forward(tokens[:, :-1], self.leaves, self.shape, skipped)
        figures, total = {}, torch.zeros(())
        for depth in (*exits_of(step, layers), layers):
            hidden = nets.norm(stream[depth - 1], self.leaves["norm"])
            loss = nets.token_loss(hidden, self.leaves["embed"], tokens[:, 1:])
            total = total + loss * (1.0 if depth == layers else EXIT_WEIGHT * depth / layers)
            kind = "loss" if depth == layers else "low" if depth <= layers // 2 else "high"
            figures[kind] = float(loss.detach())
        total.backward()
        return weights.gather_grads(self.leaves, self.masters, layers), figures
