"""How what runs a plan uses memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from specplan.cost_models.devices.device import Device
from specplan.cost_models.devices.roofline import AnalyticDevice


@dataclass(frozen=True, slots=True)
class Runtime:
    """How what runs a plan uses memory; the plain constructor is the way of the interpreter.

    Attributes:
        windowed_caches: layers with a window keep no more slots than it (and the drafted ones).
        graph_bytes: of one captured graph, without its workspace; a round is one graph.
        reserve_bytes: context and kernels of the framework, per device.
        devices: that share each layer.
        step_tokens: most tokens of prompts in one pass; the interpreter reads those of a batch
            together, chunk by chunk. 0 where other devices read prompts.
        spare_states: recurrent states of a request besides those of the root and of drafted nodes:
            of three text tokens, and for dead writes; engines keep none (vLLM: 1 + K blocks).
        widens_caches: attention reads a copy of a layer's cache in the model's number type where
            the cache is in another; kernels of accelerators widen what they read.
    """

    windowed_caches: bool = False
    graph_bytes: float = 0.0
    reserve_bytes: float = 0.0
    devices: int = 1
    step_tokens: float = inf
    spare_states: int = 4
    widens_caches: bool = True


EAGER = Runtime()
"""The interpreter on a CPU: it keeps all slots of all layers and reserves nothing."""


def runtime_of(device: Device) -> Runtime:
    """What a device and its stack take for themselves; measured devices run the backend eagerly."""
    if not isinstance(device, AnalyticDevice):
        return EAGER
    stack, accelerator = device.stack, device.processors > 0
    return Runtime(
        windowed_caches=bool(stack.windowed_caches),
        graph_bytes=stack.graph_bytes if accelerator else 0.0,
        reserve_bytes=stack.reserve_bytes if accelerator else 0.0,
        devices=device.count,
        spare_states=0 if accelerator else EAGER.spare_states,
        widens_caches=not accelerator,
    )
