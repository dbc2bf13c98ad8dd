"""Seconds that training a drafter takes on the device that serves, by its own forward passes.

A token of the text takes a forward pass of the target in every epoch, unless its hidden states are
stored, and a forward and a backward pass of the drafter for every position that the recipe
unrolls. A backward pass has twice the operations of a forward pass (Kaplan et al. 2020, arXiv
2001.08361 section 2.1). Writing the answers of the target is not counted.
"""

from __future__ import annotations

from specplan.cost_models.devices.device import Device
from specplan.cost_models.models.model_shape import ModelShape
from specplan.planner.training.families import Recipe

FORWARD_AND_BACKWARD = 3.0
"""Operations of a training step over those of a forward pass."""
UTILISATION = 0.5
"""Part of the speed of the device's forward passes over long texts that training reaches.

So a published run of vllm-project/speculators (Llama-3.1-8B, EAGLE-3, 5,000 conversations, 5
epochs, 2 H100, 572 s) comes out within a factor of 2; one of apple/ml-recurrent-drafter took
several times as long (ReDrafter, 7B, ShareGPT, 2 epochs, 8 H100, 1.5 h). The rest is the optimizer
and data.
"""
BATCH = 8
LONGEST = 2048
"""Texts of a step, and the longest of them in tokens (`max_length` of SpecForge)."""


def training_seconds(
    device: Device,
    target: ModelShape,
    drafter: ModelShape,
    recipe: Recipe,
    tokens: float,
) -> float:
    """Seconds of a training on all accelerators of the device.

    Args:
        device: where it is trained.
        target: whose hidden states it reads.
        drafter: what is trained.
        recipe: how much of it.
        tokens: mean length of a conversation; longer ones are cut to `LONGEST`.

    Raises:
        UnpricedError: the device has no times for such passes.
    """
    length = max(1, round(min(tokens, LONGEST)))
    target_seconds = device.forward_seconds(target, BATCH, length, 0.0).median
    head_seconds = device.forward_seconds(drafter, BATCH, length, 0.0).median
    passes = 1 if recipe.stored else recipe.epochs
    steps = recipe.epochs * recipe.unroll * FORWARD_AND_BACKWARD
    seconds = passes * target_seconds + steps * head_seconds
    return float(recipe.samples / BATCH * seconds / UTILISATION)
