"""The time of prompts."""

from __future__ import annotations

import numpy as np

from specplan.cost_models.cost import Quantity
from specplan.cost_models.devices.device import Device
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape


def prefill_seconds(
    device: Device,
    shape: ModelShape,
    batch: Quantity,
    prompt_tokens: Quantity,
    cached: Quantity = 0,
) -> Seconds:
    """The prompts of a batch through one model, whose cache has their first `cached` tokens.

    Raises:
        UnpricedError: the device cannot say.
    """
    if not isinstance(prompt_tokens, np.ndarray) and prompt_tokens <= 1:
        return Seconds.exact(0.0)
    return device.prefill_seconds(shape, batch, prompt_tokens, cached)
