"""A round captured in CUDA graphs, which copy the host's numbers in and the report out.

Texts, caches, tracks and values stay where they are from round to round. What the host makes for
each round it writes to pinned memory, from which the first graph copies; the report goes back the
same way.

Launching a graph takes the host near 1 us per kernel, in which the device would wait. So the first
graph of a flat program is short, and each hides the launch of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from specplan.backends.static.buckets import doubled

SMALLEST_KEYS = 256
"""Slots attended to are this many, doubled as often as is needed: a graph holds one number."""
FIRST_OPS, GROWTH = 150, 4
"""Tensor ops in the first graph of a round, and how many times as many in each that follows."""


class CapturedRound:
    """One round of one batch, for one number of slots attended to.

    Its first call runs the program as it is, which sets up what a capture may not: libraries,
    kernels that are compiled when first launched, constants. The second captures it.

    Args:
        program: from tensors on the device to the round's report.
        device: a CUDA device.
    """

    def __init__(self, program: Callable[..., Tensor], device: torch.device) -> None:
        self._program = program
        self._device = device
        self._report: Tensor | None = None
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._pinned: dict[int, Tensor] = {}

    def __call__(self, *given: Tensor) -> Tensor:
        """Run the round.

        Args:
            given: as `Interface.read` names them. What is on the CPU may differ from call to call;
                what is on the device must be the same tensors in each.

        Returns:
            The report (`interface.report`), on the CPU; the next call overwrites it.
        """
        with torch.cuda.device(self._device):  # it need not be the current one
            return self._run(given)

    def _run(self, given: Sequence[Tensor]) -> Tensor:
        if self._report is None:
            report = self._program(*self._placed(given))
            self._report = torch.empty_like(report, device="cpu", pin_memory=True)
            return self._report.copy_(report)
        if not self._graphs:
            self._graphs = self._capture(given, self._report)
        for place, host in self._pinned.items():
            host.copy_(given[place])
        for graph in self._graphs:
            graph.replay()
        torch.cuda.current_stream().synchronize()
        return self._report

    def _placed(self, given: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.to(self._device) for tensor in given]

    def _capture(self, given: Sequence[Tensor], report: Tensor) -> list[torch.cuda.CUDAGraph]:
        """Record the round, and the copies before and after it; runs nothing."""
        fixed = self._placed(given)
        for place, tensor in enumerate(given):
            if tensor.device.type == "cpu":
                self._pinned[place] = torch.empty_like(tensor, pin_memory=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        with torch.cuda.stream(_capturing(self._device)), _Capture() as capture:
            for place, host in self._pinned.items():
                fixed[place].copy_(host, non_blocking=True)
            report.copy_(self._program(*fixed), non_blocking=True)
        self._fixed = fixed  # the graphs read and write them by address
        return capture.graphs


class _Capture(TorchDispatchMode):
    """Records what runs under it as graphs that share their memory, to be launched in their order.

    Compiled packages launch kernels that no dispatcher sees: they are one graph.

    Attributes:
        graphs: recorded so far.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._open = False
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self._pool = torch.cuda.graph_pool_handle()

    def __enter__(self) -> _Capture:
        self._begin()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        with nullcontext() if error is None else suppress(RuntimeError):
            self._end()

    def __torch_dispatch__(
        self,
        op: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not self._left:
            self._end()
            self._begin()
        self._left -= 1
        return op(*args, **(kwargs or {}))

    def _begin(self) -> None:
        self._left = FIRST_OPS * GROWTH ** len(self.graphs)
        self.graphs.append(torch.cuda.CUDAGraph())
        self.graphs[-1].capture_begin(self._pool, capture_error_mode="thread_local")
        self._open = True

    def _end(self) -> None:
        if self._open:
            self._open = False
            self.graphs[-1].capture_end()


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
