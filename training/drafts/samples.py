"""What a draft model writes by itself: texts to learn from on policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from zlib import crc32

import torch

from specplan.backends.registry import INTERPRETER, get_backend
from specplan.measure.device.probes import plain_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.training.learning.packing import Text

SPREAD = 1_000_003
"""Seeds of steps are so far apart."""


def drawn_on_policy(share: float, seed: int, step: int) -> bool:
    """Whether a step learns from the draft model's own samples.

    Args:
        share: of the steps.
        seed: of the training.
        step: its number.
    """
    generator = torch.Generator().manual_seed(seed * SPREAD + step)
    return torch.rand((), generator=generator, dtype=torch.float64).item() < share


def own_texts(
    model: CausalModel,
    groups: Sequence[Sequence[Text]],
    temperature: float,
    seed: int,
    stops: tuple[int, ...] = (),
) -> list[list[Text]]:
    """The texts of some rows as a model goes on with their prompts, as long as they are.

    A text without a prompt is gone on with from its middle.

    Args:
        model: that writes.
        groups: texts by row.
        temperature: of its samples.
        seed: of the samples; a text's is the same whatever stands beside it.
        stops: tokens that end a text.
    """
    prompts = [
        text.tokens[: text.start or max(1, len(text.tokens) // 2)] for text in chain(*groups)
    ]
    requests = [
        Request(
            prompt_tokens=prompt,
            max_new_tokens=len(text.tokens) - len(prompt),
            temperature=temperature,
            seed=seed * SPREAD + crc32(repr(text.tokens).encode()),
            stop_tokens=stops,
        )
        for prompt, text in zip(prompts, chain(*groups), strict=True)
    ]
    executable = get_backend(INTERPRETER).compile(plain_plan(False), {"target": model})
    written = iter(zip(prompts, generate(executable, requests).completions, strict=True))
    rows = [[next(written) for _ in group] for group in groups]
    return [[Text((*prompt, *one.tokens), len(prompt)) for prompt, one in row] for row in rows]
