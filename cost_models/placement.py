"""Layers of a model outside of the device's memory, and the time to read them.

FlexGen (Sheng et al. 2023, arXiv 2303.06865) names where each part of a model lies its placement.
Here the last layers of a model may lie on a disk or in the memory of the host. A pass reads each
of them once, however many tokens it has, into one of two buffers: while one layer is computed,
the next one is read. So a pass over a large tree takes little longer than one over a token, which
is what SpecExec (arXiv 2406.02532) and Sequoia (arXiv 2402.12374) make use of.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from specplan.cost_models.cost import Quantity, maximum
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.number_formats import models_by_role
from specplan.cost_models.models.parameters import layer_inventory
from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.cost_models.models.model_shape import ModelShape

Link = Literal["disk", "host"]
BUFFERS = 2
"""Layers of a placement that lie in the device's memory at a time."""
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.(.+)$")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the last layers of a model lie.

    Attributes:
        link: what they are read over: `disk`, from the checkpoint's files, or `host`, from the
            memory of the host.
        layer_bytes: that each of them moves, in their order.
        spared: bytes of the device's memory that they would take, less those of the buffers.
        bandwidth: of the link, bytes per second; None for what the device says.
    """

    link: Link
    layer_bytes: tuple[float, ...]
    spared: float
    bandwidth: float | None = None


class Reader(Protocol):
    """A device, as far as it reads from outside of its memory."""

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """See `specplan.cost_models.devices.device.Device.read_seconds`."""
        ...


def streamed_layers(problem: Mapping[str, Any]) -> dict[str, int]:
    """Of a problem's JSON form: by role, most layers that are read from files in every pass."""
    stated = models_by_role(problem).items()
    placed = {role: one["placement"] for role, one in stated if one.get("placement")}
    return {role: one.get("layers") or sys.maxsize for role, one in placed.items()}


def layer_of(name: str) -> tuple[int, str] | None:
    """Number of the layer that a tensor of a checkpoint belongs to, and its name in the layer."""
    match = _LAYER.search(name)
    return (int(match[1]), match[2]) if match else None


def place(
    shape: ModelShape,
    link: Link,
    layers: int | None = None,
    bandwidth: float | None = None,
    stored: Mapping[str, float] | None = None,
) -> Placement:
    """A placement of the last layers of a model.

    Args:
        shape: the model.
        link: see `Placement`.
        layers: how many of the last ones; None for all.
        bandwidth: see `Placement`.
        stored: bytes of the checkpoint's tensors by name, which a disk reads as they are; without
            them, and from the host, layers move in the format that they run in.

    Raises:
        UsageError: there are no such layers, or no more than there are buffers.
    """
    count = shape.num_layers if layers is None else layers
    if not BUFFERS < count <= shape.num_layers:
        raise UsageError(
            f"{count} layers are to be read in every pass, and the model has {shape.num_layers}",
            where=shape.name,
            remedy=f"Give at least {BUFFERS + 1} of them, as {BUFFERS} lie in memory at a time, "
            "and at most all.",
        )
    own = [_bytes_in_memory(shape, index) for index in range(shape.num_layers)][-count:]
    moved = [0.0] * shape.num_layers
    for name, size in (stored or {}).items() if link == "disk" else ():
        known = layer_of(name)
        if known is not None and known[0] < shape.num_layers:
            moved[known[0]] += size
    in_files = moved[-count:]
    read = tuple(in_files if all(in_files) else own)
    return Placement(link, read, sum(own) - BUFFERS * max(own), bandwidth)


def _bytes_in_memory(shape: ModelShape, index: int) -> float:
    inventory = layer_inventory(shape.layers[index], shape.hidden_size)
    return sum(
        count * shape.formats.of_parameters(part).bytes_per_element
        for part, count in inventory.items()
    )


def with_reads(
    device: Reader,
    shape: ModelShape,
    time: Seconds,
    tokens: Quantity,
    logit_rows: Quantity | None,
    layers: tuple[int, int] | None,
) -> Seconds:
    """A pass whose layers are read while it runs.

    The layers of a span share the time that they take in memory evenly; the LM head takes as much
    of it as of the multiply-adds.

    Args:
        device: what reads.
        shape: the model, with its placement.
        time: of the pass, were all its layers in memory.
        tokens: of the pass, per sequence.
        logit_rows: those of them that get logits; None for all.
        layers: half-open span of layers; None for all.

    Raises:
        UnpricedError: the device does not know the link.
    """
    placement = shape.placement
    assert placement is not None
    first, last = layers or (0, shape.num_layers)
    resident = shape.num_layers - len(placement.layer_bytes)
    read = placement.layer_bytes[max(first - resident, 0) : max(last - resident, 0)]
    if not read:
        return time
    reads = [_read(device, placement, moved) for moved in read]
    head: Quantity = shape.vocab_size * shape.embedding_size
    body = (shape.matmul_parameters - head) * ((last - first) / shape.num_layers)
    head = head * (1.0 if logit_rows is None else logit_rows / tokens)
    in_layers = body / (body + head)

    def ending(whole: Quantity, each: Sequence[float]) -> Quantity:
        layer = whole * in_layers / (last - first)
        return overlapped(each, layer, (last - first - len(each)) * layer) + whole * (1 - in_layers)

    return Seconds(
        ending(time.median, [one.median for one in reads]),
        ending(time.low, [one.low for one in reads]),
        ending(time.high, [one.high for one in reads]),
        time.extrapolated | any(one.extrapolated for one in reads),
    )


def overlapped(reads: Sequence[float], layer: Quantity, before: Quantity = 0.0) -> Quantity:
    """Seconds until layers have run that are read into two buffers, one after another.

    A layer runs once it is read and the one before has run; it is read once the one before is
    read and its buffer is free, which is when the second layer before it has run.

    Args:
        reads: seconds to read each layer.
        layer: seconds that each layer runs.
        before: seconds that layers in memory run before these, while the first two are read.
    """
    ready: Quantity = 0.0
    ends: list[Quantity] = [before]
    for number, read in enumerate(reads):
        free = ends[number - BUFFERS + 1] if number >= BUFFERS else 0.0
        ready = maximum(ready, free) + read
        ends.append(maximum(ends[-1], ready) + layer)
    return ends[-1]


def _read(device: Reader, placement: Placement, moved: float) -> Seconds:
    if placement.bandwidth is not None:
        return Seconds.exact(moved / placement.bandwidth)
    return device.read_seconds(placement.link, moved)
