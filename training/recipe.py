"""How a drafter is trained, and what it learns by that."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specplan.measure.acceptance.heads import depth_of, on_first_layers
from specplan.runtime.models.heads.drafter import Drafter
from specplan.training.learning.objective import Objective
from specplan.training.losses import step_weights


@dataclass(frozen=True)
class Recipe:
    """How a head is trained.

    Attributes:
        rows: of texts in a step.
        row_tokens: most tokens of a row, unless one text has more.
        learning_rate: of Adam, reached after `warmup` steps.
        head_rate: part of the learning rate at which LM heads learn, which begin as the target's.
        warmup: steps over which the learning rate rises.
        clip: largest norm of a gradient.
        loss: see `specplan.training.losses.parts_of`.
        unroll: tokens ahead that are learned; at most those of the head, all of block drafters.
        blocks: roots of a row that block drafters and look-ahead tokens learn from in a step.
        answers: the target answers prompts, and the answers are learned; else the prompts are, as
            the target would go on after each token.
        decay: weight of a token ahead over that of the one before (EAGLE-3, Medusa).
        temperature: that the target is served at.
        cooling: last part of the steps, over which the learning rate falls to 0.
        save_every: steps between checkpoints.
        seed: of everything that is random.
    """

    rows: int = 8
    row_tokens: int = 512
    learning_rate: float = 1e-3
    head_rate: float = 1.0
    warmup: int = 20
    clip: float = 0.5
    loss: str = "ce"
    unroll: int = 7
    blocks: int = 64
    answers: bool = True
    decay: float = 0.8
    temperature: float = 0.0
    cooling: float = 0.25
    save_every: int = 100
    seed: int = 0


USUAL = Recipe()
NARROW = 1024
"""Hidden size of a target below which its heads learn from smaller steps at a higher rate."""


def usual(width: int) -> dict[str, float]:
    """Learning rate and rows of a step of a head, by the hidden size of its target.

    The rate at which Adam trains best goes with 1 / width (Yang et al. 2022, arXiv 2203.03466), and
    what bears a high rate learns more from many small steps. An EAGLE-1 head of the reference
    target, of hidden size 256, was accepted at the first token 0.81 of the time after 1,300 steps
    of two rows at 0.004; steps of eight rows at 0.001 were far behind after as many tokens.
    """
    if width >= NARROW:
        return {"learning_rate": USUAL.learning_rate, "rows": USUAL.rows}
    return {"learning_rate": min(USUAL.learning_rate * NARROW / width, 0.004), "rows": 2}


def objective_of(head: Drafter, recipe: Recipe, compute: torch.dtype) -> Objective:
    """What a head learns by a recipe."""
    one = head.description
    ahead = depth_of(head) if one.join == "block" else min(recipe.unroll, depth_of(head))
    if on_first_layers(head):
        ahead = 1  # it reads the target's states at every token, so that all steps are the first
    weights = step_weights(ahead, recipe.decay)
    return Objective(recipe.loss, weights, recipe.temperature, compute, answers=recipe.answers)


def fast_type(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The number type of products in training: bfloat16 where a device computes faster with it."""
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        reads = getattr(torch.cpu, "get_capabilities", dict[str, bool])()
        fast = bool(reads.get("avx512_bf16") or reads.get("amx_bf16") or reads.get("bf16"))
    return torch.bfloat16 if fast and dtype == torch.float32 else dtype
