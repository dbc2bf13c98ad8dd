"""Devices in one pool that reads prompts and decodes, or in two: one reads and one decodes.

All times are means of a server that is kept busy. In one pool, prompts take their part of the
device from the steps (the limit of `serving/mean_values.py` under load); in two, steps run without
prompts, and groups that read must keep up with those that decode (Splitwise, arXiv 2311.18677).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from specplan.cost_models.devices.parallel import (
    NODE_LINK,
    USABLE,
    Split,
    SplitPrice,
    node_size,
    price_split,
    splits,
)
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.forward import splits_evenly
from specplan.cost_models.models.model_shape import ModelShape

READING = 0.8
"""Most of their time for which groups read prompts: a queue of constant times at 0.8 waits for less
than two prompts."""


@dataclass(frozen=True)
class Pools:
    """Devices that read prompts, and devices that decode.

    Attributes:
        decode: how those that decode are split.
        reading: devices of a group that reads prompts; 0 where those that decode read them.
        groups: that read prompts.
    """

    decode: Split
    reading: int = 0
    groups: int = 0

    @property
    def devices(self) -> int:
        """All of both pools."""
        return self.decode.devices + self.reading * self.groups

    def __str__(self) -> str:
        if not self.reading:
            return f"{self.decode}, prompts in between"
        return (
            f"{self.reading * self.groups} prefill ({Split(self.reading, replicas=self.groups)})"
            f" + {self.decode.devices} decode ({self.decode})"
        )


@dataclass(frozen=True)
class PoolPrice:
    """Pools with so many requests that decode.

    Attributes:
        pools: the pools.
        requests: that decode at once, in all replicas.
        rate: requests that are served per second.
        tpot: seconds per output token of one request.
        ttft: seconds of a prompt and of what follows until the first token, waits aside.
        output_tokens: of a request.
    """

    pools: Pools
    requests: int
    rate: float
    tpot: float
    ttft: float
    output_tokens: int

    @property
    def per_user(self) -> float:
        """Tokens per second of one request while it decodes."""
        return 1.0 / self.tpot

    @property
    def per_device(self) -> float:
        """Output tokens per second of all requests, prompts included, per device of both pools."""
        return self.rate * self.output_tokens / self.pools.devices


@dataclass(frozen=True)
class PoolSearch:
    """What is compared.

    Attributes:
        shape: the model.
        device: one of the devices.
        count: of them, all used.
        prompt_tokens: of a request.
        output_tokens: of a request.
    """

    shape: ModelShape
    device: AnalyticDevice
    count: int
    prompt_tokens: int
    output_tokens: int

    def prices(self, requests: Sequence[int]) -> list[PoolPrice]:
        """One pool and every two pools, at every number of requests that they hold."""
        return [
            price
            for reading, groups, decode in self._pools()
            for number in requests
            if (price := self._price(Pools(decode, reading, groups), number)) is not None
        ]

    def _pools(self) -> Iterator[tuple[int, int, Split]]:
        """Devices of a group that reads, groups, and the split of those that decode."""
        for split in splits(self.shape, self.device, self.count):
            if split.plain:
                yield 0, 0, split
        most = min(node_size(self.device), self.count - 1) if self.device.link_bandwidth else 1
        for reading in range(1, most + 1):
            if not splits_evenly(self.shape, reading) or not self._holds(reading):
                continue
            for groups in range(1, (self.count - 1) // reading + 1):
                for split in splits(self.shape, self.device, self.count - reading * groups):
                    if split.plain:
                        yield reading, groups, split

    def _holds(self, reading: int) -> bool:
        """Whether a group holds the model and the cache of a prompt."""
        needed = self.shape.weight_bytes + self._prompt_bytes
        return needed <= USABLE * reading * self.device.memory_bytes

    @property
    def _prompt_bytes(self) -> float:
        """The caches and states of a prompt."""
        return self.prompt_tokens * self.shape.kv_bytes_per_token + self.shape.state_bytes

    @cached_property
    def _steps(self) -> dict[tuple[Split, int], SplitPrice | None]:
        return {}

    @cached_property
    def _prompts(self) -> dict[int, float]:
        return {}

    def _prompt(self, devices: int) -> float:
        """Seconds of a prompt on a group of devices."""
        if devices not in self._prompts:
            group = self.device.times(devices)
            seconds = group.prefill_seconds(self.shape, 1, self.prompt_tokens)
            self._prompts[devices] = float(seconds.median)
        return self._prompts[devices]

    def _price(self, pools: Pools, requests: int) -> PoolPrice | None:
        tokens = self.prompt_tokens + self.output_tokens // 2
        key = pools.decode, requests
        if key not in self._steps:
            self._steps[key] = price_split(pools.decode, self.shape, self.device, requests, tokens)
        step = self._steps[key]
        if step is None:
            return None
        decoding = self.output_tokens * step.tpot
        if not pools.reading:
            prompt = self._prompt(pools.decode.tensor)
            each = requests / pools.decode.replicas
            rate = 1.0 / (decoding / each + prompt)  # of one replica, which reads its own prompts
            slower = step.tpot / (1.0 - rate * prompt)
            total = rate * pools.decode.replicas
            return PoolPrice(pools, requests, total, slower, prompt + slower, self.output_tokens)
        prompt, rate = self._prompt(pools.reading), requests / decoding
        link = self._prompt_bytes / (NODE_LINK * pools.reading)
        if rate * max(prompt, link) > READING * pools.groups:
            return None
        ttft = prompt + link + step.tpot
        return PoolPrice(pools, requests, rate, step.tpot, ttft, self.output_tokens)
