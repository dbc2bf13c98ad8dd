"""Several processes that train one head, as torchrun starts them.

Each takes its part of the texts of a step; gradients are added up in the order of the processes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

ItemT = TypeVar("ItemT")


def join_processes() -> tuple[int, int]:
    """The number of this process and how many there are; joins the others where there are any.

    `torchrun` says both in the environment (`RANK`, `WORLD_SIZE`).
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    return int(os.environ.get("RANK", "0")) if size > 1 else 0, size


def share(items: Sequence[ItemT], rank: int, size: int) -> list[ItemT]:
    """The part of a process, every `size`-th from its number on."""
    return list(items[rank::size])


def add_up(tensors: Sequence[Tensor], size: int) -> None:
    """Replace tensors by their sums over all processes; the same bits in each of them."""
    if size > 1:
        for tensor in tensors:
            torch.distributed.all_reduce(tensor)


def wait(size: int) -> None:
    """Until all processes are here."""
    if size > 1:
        torch.distributed.barrier()
