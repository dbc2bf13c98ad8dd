"""Layers of a model that are read from its files in every pass, instead of lying in memory.

Two buffers, each a layer of the model with tensors of its own, take turns: while one runs, the
next layer is read into the other by a thread. Files are read past the page cache (`O_DIRECT`)
where the file system can do so; elsewhere the kernel is asked to drop what was read. Either way a
pass reads what it says it reads, and memory holds two layers and a small window of a file.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specplan.cost_models.models.files.safetensors_headers import (
    DTYPE_NAMES,
    read_header,
    weight_files,
)
from specplan.cost_models.placement import BUFFERS, layer_of
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.models.rotary_layers import RotaryLayer

WINDOW = 4 << 20
"""Bytes that are read at a time, at most."""
SWITCH_SECONDS = 5e-5
"""After which a waiting thread gets Python's lock, in the whole process."""
_SECTOR = 4096
"""Direct reads begin and end at multiples of this."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor in a file: its name in the layer, its bytes `start` to `stop`, and its dtype."""

    name: str
    start: int
    stop: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _Step:
    """Bytes of a file that are read at once, and where what they hold goes."""

    path: Path
    begin: int
    stop: int
    sources: list[Tensor]
    goals: list[Tensor]


class LayerFiles:
    """The layers of a checkpoint in its safetensors files, which stay open.

    Args:
        folder: of the checkpoint.

    Attributes:
        direct: all files are read past the page cache.

    Raises:
        UsageError: a file is missing, damaged, or cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self.direct = True
        self._files: dict[Path, int] = {}
        self._layers: dict[int, dict[Path, list[_Stored]]] = defaultdict(lambda: defaultdict(list))
        for path in weight_files(folder):
            for name, tensor in read_header(path).items():
                known = layer_of(name)
                if known is None:
                    continue
                kind = getattr(torch, DTYPE_NAMES.get(tensor.dtype, ""), None)
                if kind is None or tensor.start % kind.itemsize:
                    raise UsageError(
                        f"tensor {name} ({tensor.dtype}) cannot be read layer by layer",
                        where=str(path),
                        remedy="Save the checkpoint again by `save_pretrained`, in bfloat16, "
                        "float16 or float32.",
                    )
                stored = _Stored(known[1], tensor.start, tensor.start + tensor.bytes, kind)
                self._layers[known[0]][path].append(stored)
            self._files[path] = self._open(path)
        self._window = mmap.mmap(-1, WINDOW)
        self._bytes = torch.frombuffer(self._window, dtype=torch.uint8)

    def __del__(self) -> None:
        for file in getattr(self, "_files", {}).values():
            os.close(file)

    def names(self, index: int) -> set[str]:
        """Names of the tensors of a layer."""
        return {one.name for stored in self._layers[index].values() for one in stored}

    def size(self, index: int) -> int:
        """Bytes of a layer."""
        every = (one for stored in self._layers[index].values() for one in stored)
        return sum(one.stop - one.start for one in every)

    def steps(self, index: int, into: Mapping[str, Tensor]) -> list[_Step]:
        """How a layer is read.

        Args:
            index: its number.
            into: where its tensors go, by their names in the layer; contiguous.
        """
        steps: list[_Step] = []
        for path, stored in self._layers[index].items():
            parts, begin = sorted(stored, key=lambda one: one.start), 0
            while parts:
                begin = max(begin, parts[0].start // _SECTOR * _SECTOR)
                stop = min(_joined(parts), begin + len(self._window))
                now = [one for one in parts if one.start < stop]
                copies = [self._copy(one, begin, stop, into[one.name]) for one in now]
                steps.append(_Step(path, begin, stop, *map(list, zip(*copies, strict=True))))
                parts = [one for one in parts if one.stop > stop]
                begin = stop
        return steps

    def read(self, steps: Iterable[_Step]) -> None:
        """Read a layer; few calls, since this thread and the one that computes share Python's lock.

        Raises:
            UsageError: a file ends too early, or cannot be read.
        """
        for step in steps:
            self._fill(step)
            torch._foreach_copy_(step.goals, step.sources)

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
        except OSError:
            self.direct = False
        try:
            return os.open(path, os.O_RDONLY)
        except OSError as error:
            raise UsageError(f"cannot be opened ({error.strerror})", where=str(path)) from error

    def _fill(self, step: _Step) -> None:
        size = -(-(step.stop - step.begin) // _SECTOR) * _SECTOR
        file, view = self._files[step.path], memoryview(self._window)[:size]
        try:
            if not self.direct and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file, step.begin, size, os.POSIX_FADV_DONTNEED)
            count = os.preadv(file, [view], step.begin)
        except OSError as error:
            raise UsageError(
                f"cannot be read ({error.strerror})",
                where=str(step.path),
                remedy="Check the disk.",
            ) from error
        if count < step.stop - step.begin:
            raise UsageError(
                f"ends after {step.begin + count} bytes, and a layer needs those up to {step.stop}",
                where=str(step.path),
                remedy="Download or save the checkpoint again; it must not change while it runs.",
            )

    def _copy(self, one: _Stored, begin: int, stop: int, whole: Tensor) -> tuple[Tensor, Tensor]:
        """What the window will have of a tensor, in its own dtype, and where that goes."""
        first, last = max(one.start, begin), min(one.stop, stop)
        part = self._bytes[first - begin : last - begin].view(one.dtype)
        offset = (first - one.start) // one.dtype.itemsize
        return part, whole.view(-1)[offset : offset + len(part)]


def _joined(parts: Sequence[_Stored]) -> int:
    """End of the tensors that follow each other without larger gaps."""
    stop = parts[0].stop
    for one in parts[1:]:
        if one.start - stop > _SECTOR:
            break
        stop = max(stop, one.stop)
    return stop


class StreamedLayers(Sequence[RotaryLayer]):
    """The layers of a model, the last ones of which share two buffers.

    Asking for a layer waits until it is read, and begins to read the next one: the layer before,
    whose buffer that takes, has run by then. So layers must be asked for in the order they run.

    Args:
        resident: those that lie in memory.
        buffers: two layers, whose tensors are overwritten.
        count: layers in all.
        files: of the checkpoint.

    Attributes:
        reading: read layers; else the buffers run as they are, as fast, and to no purpose but
            to time them.
    """

    def __init__(
        self,
        resident: Sequence[RotaryLayer],
        buffers: Sequence[RotaryLayer],
        count: int,
        files: LayerFiles,
    ) -> None:
        self.resident, self.buffers, self._total = resident, buffers, count
        self.files = files
        self.reading = True
        tensors = [layer.stored() for layer in buffers]
        self._content: list[int | None] = [None] * BUFFERS
        self._reads: list[Future[None] | None] = [None] * BUFFERS
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="layers")
        # The thread that computes lets Python's lock go in every op and is back before the other
        # one wakes, which then waits a whole interval, 5 ms by default: a layer or more.
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        for index in self.streamed:
            if files.names(index) != {*tensors[0]}:
                raise MissingCapabilityError(
                    f"layer {index} has other tensors than the layers that run here",
                    where=", ".join(sorted(files.names(index) ^ {*tensors[0]})),
                    remedy="Leave the placement out: layers that are read must be alike.",
                )
        self._steps = {i: files.steps(i, tensors[i % BUFFERS]) for i in self.streamed}

    @property
    def streamed(self) -> range:
        """Numbers of the layers that are read in every pass."""
        return range(len(self.resident), self._total)

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, index: Any) -> Any:
        """A layer that is to run now, with its tensors."""
        if index not in range(self._total):
            raise IndexError(index)
        first = len(self.resident)
        if index < first:
            self._fetch(first)
            self._fetch(first + 1)
            return self.resident[index]
        self._fetch(index)
        self._fetch(index + 1)
        place = index % BUFFERS
        read, layer = self._reads[place], self.buffers[place]
        if read is not None:
            read.result()
        layer.index = index
        return layer

    def read_through(self) -> Iterator[int]:
        """Read every layer into a buffer, one after another; bytes of each."""
        self._content = [None] * BUFFERS
        for index in self.streamed:
            self._thread.submit(self.files.read, self._steps[index]).result()
            yield self.files.size(index)

    def _fetch(self, index: int) -> None:
        place = index % BUFFERS
        if not self.reading or index >= self._total or self._content[place] == index:
            return
        self._content[place] = index
        self._reads[place] = self._thread.submit(self.files.read, self._steps[index])


def streamed_of(model: Any) -> StreamedLayers | None:
    """The layers of a model, if some are read in every pass."""
    layers = getattr(getattr(model, "family", None), "layers", None)
    return layers if isinstance(layers, StreamedLayers) else None


@contextmanager
def without_reads(models: Iterable[Any]) -> Iterator[None]:
    """Run models as if all their layers were in memory; what they compute means nothing then."""
    streams = [layers for model in models if (layers := streamed_of(model)) is not None]
    for layers in streams:
        layers.reading = False
    try:
        yield
    finally:
        for layers in streams:
            layers.reading = True
