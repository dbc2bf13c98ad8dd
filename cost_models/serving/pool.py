"""Devices that read prompts for others that decode (disaggregated prefill).

Source: Splitwise (arXiv 2311.18677) and DistServe (arXiv 2401.09670): prompts are read by a pool of
their own, the keys and values go over a link, and the devices that decode never stop for a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specplan.cost_models.cost import Quantity
from specplan.cost_models.devices.device import Device
from specplan.cost_models.models.model_shape import ModelShape


@dataclass(frozen=True)
class PrefillPool:
    """Groups of devices, each of which reads one prompt at a time.

    Attributes:
        device: one group, which shares every layer.
        replicas: groups.
        bandwidth: of the link from a group to the devices that decode, bytes per second.
    """

    device: Device
    replicas: int
    bandwidth: float

    def transfer_seconds(self, shapes: Iterable[ModelShape], tokens: Quantity) -> Quantity:
        """Seconds in which the caches of one prompt move, once it has been read.

        Args:
            shapes: of the models that keep a cache.
            tokens: of the prompt, which a number or an array says.
        """
        moved = [tokens * one.kv_bytes_per_token + one.state_bytes for one in shapes]
        return sum(moved) / self.bandwidth
