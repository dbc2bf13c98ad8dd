"""The time of prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from specplan.cost_models.cost import Quantity, minimum
from specplan.cost_models.devices.device import Device, UnpricedError
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.vision import SeeingShape
from specplan.ir.plan import CacheState


def prefill_seconds(
    device: Device,
    shape: ModelShape,
    batch: Quantity,
    prompt_tokens: Quantity,
    cached: Quantity = 0,
) -> Seconds:
    """The prompts of a batch through one model, whose cache has their first `cached` tokens.

    Images of prompts are read first. A device that was measured knows the language model alone:
    there the tower takes as much longer or less than the prompt as it computes more or less.

    Raises:
        UnpricedError: the device cannot say.
    """
    if not isinstance(prompt_tokens, np.ndarray) and prompt_tokens <= 1:
        return Seconds.exact(0.0)
    read = device.prefill_seconds(shape, batch, prompt_tokens, cached)
    if not isinstance(shape, SeeingShape):
        return read
    tower, places = shape.vision, shape.vision.max_positions
    try:
        seen = device.forward_seconds(tower, batch * shape.images, places, 0, logit_rows=0)
    except UnpricedError:
        whole = device.prefill_seconds(shape, batch, prompt_tokens)
        share = tower.parameters * places * shape.images / shape.matmul_parameters
        seen = whole * (share / prompt_tokens)
    return read + seen


def observing_seconds(
    device: Device,
    shape: Callable[[str], ModelShape],
    batch: Quantity,
    states: Iterable[CacheState],
    prompt_tokens: Quantity,
) -> Iterator[Seconds]:
    """Passes over the last tokens of prompts that tell which tokens some views hold.

    Raises:
        UnpricedError: the device cannot say.
    """
    for state in states:
        if state.observes and state.policy is not None:
            window = minimum(state.policy.integer("window", 32), prompt_tokens)
            yield device.forward_seconds(shape(state.model), batch, window, prompt_tokens, 0)
