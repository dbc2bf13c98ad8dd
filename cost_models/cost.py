"""The resources that an op uses. They are kept separate from time, which depends on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Quantity = Any
"""An int, a float, a NumPy array or a sympy expression: every formula serves all four."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Resources of some work.

    Attributes:
        flops: floating-point operations; a multiply and its add are two.
        weight_bytes: bytes of parameters read.
        kv_bytes: bytes of cached keys, values and recurrent states read and written.
        activation_bytes: bytes of activations read and written.
        launches: kernels started.
        link_bytes: bytes that each device moves over the links to the others.
    """

    flops: Quantity = 0
    weight_bytes: Quantity = 0
    kv_bytes: Quantity = 0
    activation_bytes: Quantity = 0
    launches: Quantity = 0
    link_bytes: Quantity = 0

    @property
    def bytes(self) -> Quantity:
        """All traffic of the device's own memory, bytes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    def __add__(self, other: Cost) -> Cost:
        """Resources of both."""
        return Cost(
            self.flops + other.flops,
            self.weight_bytes + other.weight_bytes,
            self.kv_bytes + other.kv_bytes,
            self.activation_bytes + other.activation_bytes,
            self.launches + other.launches,
            self.link_bytes + other.link_bytes,
        )

    def __mul__(self, times: Quantity) -> Cost:
        """Resources of `times` repetitions."""
        return Cost(
            self.flops * times,
            self.weight_bytes * times,
            self.kv_bytes * times,
            self.activation_bytes * times,
            self.launches * times,
            self.link_bytes * times,
        )

    __rmul__ = __mul__


@dataclass(frozen=True, slots=True)
class Matrix:
    """Sizes of a matrix product, rows x inputs times inputs x outputs.

    Attributes:
        rows: T, the tokens multiplied.
        inputs: k.
        outputs: m.
        copies: products of this size done in one kernel, e.g. one per expert; `rows` is of each.
    """

    rows: Quantity
    inputs: int
    outputs: int
    copies: Quantity = 1


@dataclass(frozen=True, slots=True)
class OpCost:
    """A named part of a forward pass.

    Attributes:
        name: what it is, e.g. `mlp_up`.
        cost: resources of one execution.
        count: executions, e.g. the number of layers.
        matrix: its sizes where it is a matrix product, whose time depends on more than the sums
            in `cost`: kernels work in tiles.
        math: number format that the multiply-adds run in, whose peak applies: "float32",
            "bfloat16", "float16", "fp8", "int8", "fp4". `forward_ops` always says.
        streams: caches, or heads of states, that are read side by side, each by nobody else.
    """

    name: str
    cost: Cost
    count: Quantity = 1
    matrix: Matrix | None = None
    math: str = ""
    streams: Quantity = 0

    @property
    def total(self) -> Cost:
        """Resources of all executions."""
        return self.cost.__mul__(self.count)

    def times(self, count: Quantity) -> OpCost:
        """The same op, executed `count` times as often."""
        return OpCost(
            self.name, self.cost, self.count * count, self.matrix, self.math, self.streams
        )


def minimum(a: Quantity, b: Quantity) -> Quantity:
    """The smaller of two quantities, whatever they are made of."""
    if hasattr(a, "free_symbols") or hasattr(b, "free_symbols"):
        import sympy

        return sympy.Min(a, b)
    if hasattr(a, "dtype") or hasattr(b, "dtype"):
        import numpy

        return numpy.minimum(a, b)
    return min(a, b)


def maximum(a: Quantity, b: Quantity) -> Quantity:
    """The larger of two quantities, whatever they are made of."""
    return -minimum(-a, -b)


def where_less(a: Quantity, b: Quantity, chosen: Quantity, otherwise: Quantity) -> Quantity:
    """`chosen` where a < b, else `otherwise`, whatever they are made of."""
    if hasattr(a, "free_symbols") or hasattr(b, "free_symbols"):
        import sympy

        return sympy.Piecewise((chosen, sympy.Lt(a, b)), (otherwise, True))
    if hasattr(a, "dtype") or hasattr(b, "dtype"):
        import numpy

        return numpy.where(a < b, chosen, otherwise)
    return chosen if a < b else otherwise
