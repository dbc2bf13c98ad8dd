"""What the GPU benchmarks share: timing without launches, and the bandwidth of a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import torch

COPY_BYTES = 1 << 30
CACHES_BYTES = 256 << 20
"""Caches of one case are copied until they take this much: no L2 cache holds them."""


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
