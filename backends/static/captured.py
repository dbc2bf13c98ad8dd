"""A round captured in a CUDA graph: one launch takes the host's numbers in and tells it what came.

Texts, caches, tracks and values stay where they are from round to round. What the host makes anew
for each round it writes to pinned memory, from which the graph copies; what a round tells goes the
same way back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from specplan.backends.static.buckets import doubled

SMALLEST_KEYS = 256
"""Slots attended to are this many, doubled as often as is needed: a graph holds one number."""


class CapturedRound:
    """One round of one batch, for one number of slots attended to.

    Its first call runs the program as it is, which sets up what a capture may not: libraries,
    kernels that are compiled when first launched, constants. The second captures it.

    Args:
        program: from tensors on the device to what it tells the host.
        device: a CUDA device.
    """

    def __init__(self, program: Callable[..., Tensor], device: torch.device) -> None:
        self._program = program
        self._device = device
        self._told: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._pinned: dict[int, Tensor] = {}

    def __call__(self, *given: Tensor) -> Tensor:
        """Run the round.

        Args:
            given: as `Interface.read` names them. What is on the CPU may differ from call to call;
                what is on the device must be the same tensors in each.

        Returns:
            As `interface.packed` has it, on the CPU; the next call writes over it.
        """
        with torch.cuda.device(self._device):  # it need not be the current one
            return self._run(given)

    def _run(self, given: Sequence[Tensor]) -> Tensor:
        if self._told is None:
            told = self._program(*self._placed(given))
            self._told = torch.empty_like(told, device="cpu", pin_memory=True)
            return self._told.copy_(told)
        if self._graph is None:
            self._graph = self._capture(given, self._told)
        for place, host in self._pinned.items():
            host.copy_(given[place])
        self._graph.replay()
        torch.cuda.current_stream().synchronize()
        return self._told

    def _placed(self, given: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.to(self._device) for tensor in given]

    def _capture(self, given: Sequence[Tensor], told: Tensor) -> torch.cuda.CUDAGraph:
        """Record the round, and the copies before and after it; runs nothing."""
        fixed = self._placed(given)
        for place, tensor in enumerate(given):
            if tensor.device.type == "cpu":
                self._pinned[place] = torch.empty_like(tensor, pin_memory=True)
        graph = torch.cuda.CUDAGraph()
        stream = _capturing(self._device)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for place, host in self._pinned.items():
                fixed[place].copy_(host, non_blocking=True)
            told.copy_(self._program(*fixed), non_blocking=True)
        self._fixed = fixed  # the graph reads and writes them by address
        return graph


@cache
def _capturing(device: torch.device) -> torch.cuda.Stream:
    """The stream for captures; one per device, as libraries keep workspaces for each stream."""
    return torch.cuda.Stream(device)


def slots_attended(used: int, slots: int, masked: bool) -> int:
    """How many slots a captured round attends to.

    Args:
        used: slots that texts and drafted nodes take up.
        slots: that there are.
        masked: some pass computes a mask over them; kernels of our own read no more than is used.
    """
    if not masked:
        return slots
    return min(slots, doubled(SMALLEST_KEYS, used))
