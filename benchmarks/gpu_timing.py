"""What the GPU benchmarks share: timing without launches, shapes, and data sheets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import torch

from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.model_shape import ModelShape

COPY_BYTES = 1 << 30
CACHES_BYTES = 256 << 20
"""Caches of one case are copied until they take this much: no L2 cache holds them."""


LLAMA_8B: dict[str, Any] = dict(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=14336, vocab_size=128256, max_position_embeddings=131072,
)  # fmt: skip
SHEETS = {
    "H100 80GB HBM3": "h100-sxm", "H100 PCIe": "h100-pcie", "H200": "h200", "B200": "b200",
    "A100-SXM4-80GB": "a100-sxm-80gb", "A100-SXM4-40GB": "a100-sxm-40gb", "L40S": "l40s",
    "GeForce RTX 4090": "rtx-4090",
}  # fmt: skip
"""Data sheets by what CUDA calls the device."""


def llama_shape(sizes: Mapping[str, Any], name: str) -> ModelShape:
    """A Llama of these sizes in bfloat16, as it is priced."""
    described = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes}
    return ModelShape.from_config(described, name=name, dtype="bfloat16")


def device_called(name: str) -> AnalyticDevice | None:
    """The data sheet of the device that CUDA calls so; None where there is none."""
    sheet = next((sheet for word, sheet in SHEETS.items() if word in name), None)
    device = None if sheet is None else load_device(sheet)
    assert device is None or isinstance(device, AnalyticDevice)
    return device


def seconds_per_call(
    calls: Sequence[Callable[[], object]], device: torch.device, repeats: int = 7
) -> float:
    """Median seconds of one of some like calls, run one after another.

    On a GPU the calls are captured in one CUDA graph, so that what is timed is the device's work.
    """
    for call in calls[:2]:
        call()
    if device.type != "cuda":
        return median(_host_seconds(calls) for _ in range(repeats)) / len(calls)
    graph = captured(lambda: [call() for call in calls])
    return median(_device_seconds(graph.replay) for _ in range(repeats)) / len(calls)


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Work as a CUDA graph; it has run once before, so that nothing is set up while capturing."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def copy_bandwidth(device: torch.device, size: int = COPY_BYTES) -> float:
    """Bytes per second, read and written, of copying one large tensor."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds_per_call([lambda: target.copy_(source)], device, 11)


def _host_seconds(calls: Sequence[Callable[[], object]]) -> float:
    start = perf_counter()
    for call in calls:
        call()
    return perf_counter() - start


def _device_seconds(work: Callable[[], object]) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 1e3
