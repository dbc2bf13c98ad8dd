"""How a model may be split over devices, and what each split makes of a step without speculation.

Splits: tensor parallelism within a node (Megatron-LM, arXiv 1909.08053), pipeline stages, replicas,
and copies of attention with experts spread over them (DP attention with expert parallelism, as
DeepSeek-V3 is served, arXiv 2412.19437 section 3.4). Pipeline stages may lie on different nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.forward import forward_ops, splits_evenly
from specplan.cost_models.models.layers import ExpertMlp, GroupedAttention
from specplan.cost_models.models.model_shape import ModelShape

NODES = {"gb200": 72, "gb300": 72}
"""Devices within one NVLink domain, by the beginning of their name; 8 elsewhere."""
NODE = 8
NODE_LINK = 50e9
"""Bytes per second of one device to another node: 400 Gb/s (NVIDIA ConnectX-7, one per GPU)."""
NODE_LATENCY = 10e-6
"""Seconds of a message between nodes; assumption, a few times that of InfiniBand itself."""
USABLE = 0.9
"""Part of the memory that engines fill: vLLM's gpu_memory_utilization."""
_EXPERTS = ("expert_up", "expert_down")


@dataclass(frozen=True)
class Split:
    """A way to use some devices.

    Attributes:
        tensor: devices that share every layer, or that hold copies of attention.
        pipeline: stages of layers, one after another.
        replicas: groups that serve requests of their own.
        attention_copies: each of the `tensor` devices runs attention for its own requests, and
            holds a part of the experts for all.
    """

    tensor: int
    pipeline: int = 1
    replicas: int = 1
    attention_copies: bool = False

    @property
    def devices(self) -> int:
        """All that it uses."""
        return self.tensor * self.pipeline * self.replicas

    @property
    def plain(self) -> bool:
        """Whether it is made of groups that share every layer, and nothing else."""
        return self.pipeline == 1 and not self.attention_copies

    def __str__(self) -> str:
        parts = [f"DP attention {self.tensor}, EP {self.tensor}"] if self.attention_copies else []
        if not parts:
            parts = [f"TP {self.tensor}"]
        if self.pipeline > 1:
            parts.append(f"PP {self.pipeline}")
        return (f"{self.replicas} replicas of " if self.replicas > 1 else "") + " x ".join(parts)


@dataclass(frozen=True)
class SplitPrice:
    """A split at one number of requests.

    Attributes:
        split: the split.
        requests: that decode at once, in all replicas.
        tpot: seconds per output token of one request.
        memory: bytes on the fullest device, weights and caches.
    """

    split: Split
    requests: int
    tpot: float
    memory: float

    @property
    def per_user(self) -> float:
        """Tokens per second of one request."""
        return 1.0 / self.tpot

    @property
    def per_device(self) -> float:
        """Tokens per second of all requests, per device."""
        return self.requests / self.tpot / self.split.devices


def splits(shape: ModelShape, device: AnalyticDevice, count: int) -> Iterator[Split]:
    """All that `count` devices can do with a model; splits that its sizes forbid are left out.

    Args:
        shape: the model.
        device: one of the devices.
        count: of them, all used.
    """
    mixtures = [layer.mlp for layer in shape.layers if isinstance(layer.mlp, ExpertMlp)]
    for tensor in _divisors(count):
        if tensor > node_size(device) or (tensor > 1 and not device.link_bandwidth):
            continue
        for pipeline in _divisors(count // tensor):
            replicas = count // tensor // pipeline
            if pipeline <= shape.num_layers and splits_evenly(shape, tensor):
                yield Split(tensor, pipeline, replicas)
            spread = mixtures and all(mlp.num_experts % tensor == 0 for mlp in mixtures)
            if tensor > 1 and pipeline == 1 and spread:
                yield Split(tensor, 1, replicas, attention_copies=True)


def node_size(device: AnalyticDevice) -> int:
    """Devices that one NVLink domain, or one node, holds."""
    return next((size for name, size in NODES.items() if device.name.startswith(name)), NODE)


def price_split(
    split: Split, shape: ModelShape, device: AnalyticDevice, requests: int, tokens: int
) -> SplitPrice | None:
    """What a split makes of so many requests of so many tokens; None where they do not fit.

    Fewer requests than stages, copies or replicas leave some without work: such splits are None.
    """
    lanes = split.replicas * (split.tensor if split.attention_copies else split.pipeline)
    if requests < lanes:
        return None
    each = -(-requests // split.replicas)
    memory = _memory(split, shape, each, tokens)
    if memory > USABLE * device.memory_bytes:
        return None
    if split.attention_copies:
        seconds = _copies_seconds(split, shape, device, each, tokens)
    else:
        stage = -(-each // split.pipeline)
        group = device.times(split.tensor)
        seconds = float(group.forward_seconds(shape, stage, 1, tokens, 1).median)
        seconds += split.pipeline * _hop(split, shape, device, stage)
    seconds += float(device.round_seconds(each).median)
    return SplitPrice(split, requests, seconds, memory)


class Speeds(Protocol):
    """A price by its two speeds, tokens per second."""

    @property
    def per_user(self) -> float:
        """Of one request."""
        ...

    @property
    def per_device(self) -> float:
        """Of all requests, per device."""
        ...


SpeedsT = TypeVar("SpeedsT", bound=Speeds)


def pareto_front(prices: Sequence[SpeedsT]) -> list[SpeedsT]:
    """Those that no other beats both per user and per device, fastest for a user first."""
    front: list[SpeedsT] = []
    for one in sorted(prices, key=lambda price: (-price.per_user, -price.per_device)):
        if not front or one.per_device > front[-1].per_device:
            front.append(one)
    return front


def search_splits(
    shape: ModelShape,
    device: AnalyticDevice,
    count: int,
    requests: Sequence[int],
    tokens: int,
) -> list[SplitPrice]:
    """Every feasible split at every number of requests."""
    return [
        price
        for split in splits(shape, device, count)
        for number in requests
        if (price := price_split(split, shape, device, number, tokens)) is not None
    ]


def _copies_seconds(
    split: Split, shape: ModelShape, device: AnalyticDevice, each: int, tokens: int
) -> float:
    """Attention and dense parts on a device's own requests, experts on all of them.

    Tokens go to their experts and back: the bytes of one all-reduce per mixture.
    """
    own = -(-each // split.tensor)
    group = device.times(split.tensor)
    kinds = shape.kinds(0, shape.num_layers)
    alone = [op for op in forward_ops(shape, own, 1, tokens, 1) if op.name not in _EXPERTS]
    shared = forward_ops(
        _without_attention(shape), each, 1, tokens, 0, tensor_parallel=split.tensor
    )
    spread = [op for op in shared if op.name in _EXPERTS]
    spread += [replace(op, count=kinds.mixtures) for op in shared if op.name == "all_reduce"]
    small = group.stack.kernels_per_layer * kinds.blocks / 2
    small += group.stack.kernels_per_mixture * kinds.mixtures
    seconds = group.ops_seconds((*alone, *spread), small)
    return float(seconds) + group.stack.seconds_per_forward


def _without_attention(shape: ModelShape) -> ModelShape:
    """The same with one head more than enough to share: only its experts are looked at."""
    layers = tuple(replace(layer, attention=None, mixer=None) for layer in shape.layers)
    return replace(shape, layers=layers)


def _hop(split: Split, shape: ModelShape, device: AnalyticDevice, stage: int) -> float:
    """Seconds to hand hidden states to the next stage; 0 where there is one stage."""
    if split.pipeline == 1:
        return 0.0
    message = stage * shape.hidden_size * shape.activation_width
    if split.tensor * split.pipeline > node_size(device):
        return NODE_LATENCY + message / NODE_LINK
    return device.seconds_per_collective + message / device.link_bandwidth


def _memory(split: Split, shape: ModelShape, each: int, tokens: int) -> float:
    """Weights and caches on one device, bytes."""
    parts = split.tensor * split.pipeline
    cache = each * tokens * shape.kv_bytes_per_token / split.pipeline
    if split.attention_copies:
        experts = sum(
            layer.mlp.num_experts * layer.mlp.intermediate_size * 3 * shape.hidden_size
            for layer in shape.layers
            if isinstance(layer.mlp, ExpertMlp)
        )
        weights = experts * shape.formats.experts.bytes_per_element
        own = shape.weight_bytes - weights * (1.0 - 1.0 / split.tensor)
        return own + (cache + each * shape.state_bytes) / split.tensor
    first = next(shape.attentions, None)
    heads = first.num_kv_heads if isinstance(first, GroupedAttention) else 1
    return (shape.weight_bytes + each * shape.state_bytes) / parts + cache / min(
        split.tensor, heads
    )


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]
