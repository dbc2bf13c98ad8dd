"""What a server that batches continuously is, and what its steps take.

A **step** of a server is one round for all requests that decode. A prompt is read by the same
device, before the next step (`first`) or in chunks that ride along with steps (`chunked`), or by
other devices (`elsewhere`), from which its caches then move. All times are device times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specplan.ir.text.yaml_text import read_data

Floats = NDArray[np.float64]
PrefillOrder = Literal["chunked", "first", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Server:
    """The limits and the order of work of a server.

    Attributes:
        prefill: where prompts are read: `first`, whole and together, by one prefill before the next
            step; `chunked` along with steps; `elsewhere` by other devices.
        running: most requests that decode together.
        step_tokens: most tokens of prompts that one step, or one prefill, reads.
        readers: devices elsewhere, or groups of them, that read one prompt at a time.
    """

    prefill: PrefillOrder = "chunked"
    running: int = 256
    step_tokens: int = 8192
    readers: int = 1


@cache
def server_of(backend: str) -> Server:
    """How a backend batches requests: an engine by its defaults (`servers.yaml`).

    Any other backend reads the prompts of new requests, whole, before the next step.
    """
    text = resources.files("specplan.cost_models.serving").joinpath("servers.yaml").read_text()
    known = read_data(text).get(backend)
    return Server("first") if known is None else Server(**known["server"])


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests that arrive.

    Attributes:
        rate: requests per second, a number or an array [...].
        prompt_tokens: that a request brings and a prefix cache does not have.
        output_tokens: that a request takes.
        burstiness: squared coefficient of variation of the times between arrivals; 1 for Poisson
            arrivals, 0 for arrivals by the clock.
    """

    rate: float | Floats
    prompt_tokens: float
    output_tokens: float
    burstiness: float = 1.0


@dataclass(frozen=True)
class StepTimes:
    """What the steps of one plan take; `...` are independent worlds, such as draws of an error.

    Attributes:
        batches: numbers of requests at which times are known, rising, [batches].
        step: seconds of a step that many requests decode in, [..., batches].
        tokens: emitted per request and step, [..., batches].
        prompt: seconds that one prompt adds to a prefill or a step, [...].
        prefill: seconds of a prefill beside its prompts, such as the weights that it reads, [...];
            a step that reads prompts along with decoding reads its weights once.
        first_steps: steps after the prefill until the first token is out: 0 where the prefill
            emits it, 1 where the first step does.
        transfer: seconds in which the caches of a prompt move that was read elsewhere, [...].
    """

    batches: Floats
    step: Floats
    tokens: Floats
    prompt: Floats
    prefill: Floats
    first_steps: int = 0
    transfer: float | Floats = 0.0

    def at(self, requests: Floats) -> tuple[Floats, Floats]:
        """Seconds of a step, and tokens per request, with so many requests, [..., requests].

        Linear between the batch sizes that are known, and that of the nearest one outside.
        """
        return interpolate(self.batches, self.step, requests), interpolate(
            self.batches, self.tokens, requests
        )


def step_times(
    batches: Floats,
    step: Floats,
    tokens: Floats,
    prefills: Floats,
    together: float,
    first_steps: int = 0,
) -> StepTimes:
    """Step times of what was estimated for batches of requests that start together.

    Prefills of several batch sizes tell what a prompt adds to one; with one it is a prompt's share.

    Args:
        batches: batch sizes, rising, [batches].
        step: seconds of a step, [..., batches].
        tokens: per request and step, [..., batches].
        prefills: seconds of the prompts of a batch, [..., batches].
        together: prompts that one prefill reads at most; larger batches take several.
        first_steps: see `StepTimes`.
    """
    last = max(int((batches <= together).sum()), min(2, len(batches))) - 1
    each = prefills[..., last] / batches[last]
    if last:
        each = (prefills[..., last] - prefills[..., 0]) / (batches[last] - batches[0])
    prompt = np.clip(each, 0.0, prefills[..., 0] / batches[0])
    fixed = np.maximum(prefills[..., 0] - prompt * batches[0], 0.0)
    wide = np.broadcast_to(tokens, step.shape)
    return StepTimes(batches, step, wide, prompt, fixed, first_steps)


def interpolate(batches: Floats, values: Floats, requests: Floats) -> Floats:
    """Values at batch sizes, between them, [..., requests]; the nearest one's outside.

    Args:
        batches: rising, [batches].
        values: [..., batches].
        requests: [requests].
    """
    if len(batches) == 1:
        return np.repeat(values, len(requests), axis=-1)
    right = np.clip(np.searchsorted(batches, requests), 1, len(batches) - 1)
    share = (requests - batches[right - 1]) / (batches[right] - batches[right - 1])
    share = np.clip(share, 0.0, 1.0)
    low, high = values[..., right - 1], values[..., right]
    between: Floats = low + (high - low) * share
    return between
