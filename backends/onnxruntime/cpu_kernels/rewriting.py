"""Ops of a graph by our own kernels, as its session opens: what is on disk stays portable.

`Gemm` on weights that are numbers of 16 bits becomes `specplan.StoredBfloat16` or `StoredFloat16`,
which read half as many bytes, and `MatMulNBits` becomes `specplan.Blocks`; see `products.h`. A
product takes in reshapes around it, and the gate of a feed-forward layer behind it.
`GroupQueryAttention` becomes `specplan.Attend`; see `attention.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from specplan.backends.onnx_export.quantized import quantized_product
from specplan.backends.onnxruntime.cpu_kernels.tiles import (
    WIDTH,
    bfloat16_tiles,
    code_tiles,
    float16_tiles,
    in_turn,
    scale_tiles,
    stored_as,
)
from specplan.backends.onnxruntime.values import elsewhere

DOMAIN = "specplan"
_SEPARATE_KEYS = 1
"""The input of `GroupQueryAttention` that has keys where queries do not come with them."""
_PLAIN = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
Making: TypeAlias = Callable[[Tensor], Tensor]
_STORED: Mapping[torch.dtype, tuple[str, Making]] = {
    torch.bfloat16: ("StoredBfloat16", bfloat16_tiles),
    torch.float16: ("StoredFloat16", float16_tiles),
}
"""Ops on weights that are numbers of 16 bits, and how their tiles are made."""


class Tiles:
    """Tiles of weights, made once for all graphs that read these."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, torch.Size, Making, bool], tuple[Tensor, Tensor]] = {}
        self._halves: dict[tuple[int, torch.Size], tuple[Tensor, torch.dtype | None]] = {}

    def stored_as(self, weight: Tensor) -> torch.dtype | None:
        """See `specplan.backends.onnxruntime.cpu_kernels.tiles.stored_as`."""
        key = weight.data_ptr(), weight.shape
        if key not in self._halves:
            self._halves[key] = weight, stored_as(weight)
        return self._halves[key][1]

    def of(self, weight: Tensor, make: Making, gated: bool) -> Tensor:
        """The tiles of a weight, which stays in memory with them.

        Args:
            weight: of which they are made.
            make: how.
            gated: tiles of the first half and of the second one in turn.
        """
        key = weight.data_ptr(), weight.shape, make, gated
        if key not in self._made:
            tiles = make(weight)
            self._made[key] = weight, in_turn(tiles) if gated else tiles
        return self._made[key][1]


def with_own_kernels(
    code: bytes, weights: Mapping[str, Tensor], tiles: Tiles
) -> tuple[bytes, dict[str, Tensor]]:
    """A graph with as many ops as possible by our own kernels, and the weights it reads.

    Args:
        code: of a model whose weights lie elsewhere.
        weights: by name.
        tiles: gets and gives tiles of weights.
    """
    import onnx
    import onnx_ir
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx_ir.from_proto(onnx.ModelProto.FromString(code))
    except DecodeError:  # a session says what is wrong
        return code, dict(weights)
    graph, read = model.graph, dict(weights)
    for node in [*graph]:
        product = _product(node, weights, tiles)
        if product is not None:
            _replace(graph, product, read, tiles)
        elif node.op_type == "GroupQueryAttention" and _is_known(node):
            _replace_attention(graph, node)
    model.opset_imports[DOMAIN] = 1
    for name, value in [*graph.initializers.items()]:
        if not value.uses() and name in weights:
            del graph.initializers[name], read[name]
    made = onnx_ir.to_proto(model)
    made.graph.initializer.extend(
        elsewhere(name, one) for name, one in read.items() if name not in weights
    )
    return made.SerializeToString(), read


@dataclass
class _Product:
    """A product in a graph.

    Attributes:
        node: of it.
        kind: our op.
        rows: of the matrix.
        parts: weights by name, and how their tiles are made.
        bias: added to it; None for none.
        rank: of the result; 0 for that of what is multiplied.
    """

    node: Any
    kind: str
    rows: int
    parts: Mapping[str, tuple[Tensor, Making]]
    bias: Any
    rank: int


def _product(node: Any, weights: Mapping[str, Tensor], tiles: Tiles) -> _Product | None:
    """What a node multiplies by, where our kernels can."""
    if node.op_type not in ("MatMulNBits", "Gemm"):
        return None
    names = [value.name if value is not None else "" for value in node.inputs]
    options = {name: one.value for name, one in node.attributes.items()}
    matrix = weights.get(names[1])
    if matrix is None:
        return None
    rows = matrix.shape[0]
    if node.op_type == "Gemm":
        plain = {**_PLAIN, "transB": 0, **options} == _PLAIN
        half = tiles.stored_as(matrix) if plain else None  # it reads the whole matrix
        if half is None:
            return None
        kind, make = _STORED[half]
        bias = node.inputs[2] if len(names) > 2 else None
        return _Product(node, kind, rows, {names[1]: (matrix, make)}, bias, 2)
    scales = weights.get(names[2])
    if len(names) > 3 or scales is None:
        return None
    if options != quantized_product([rows, options["K"]], matrix.shape):
        return None
    parts = {names[1]: (matrix, code_tiles), names[2]: (scales, scale_tiles)}
    before = _shape_to(node.inputs[0])
    rank = 2 if before is not None and len(before) == 2 else 0
    return _Product(node, "Blocks", rows, parts, None, rank)


def _replace(graph: Any, product: _Product, read: dict[str, Tensor], tiles: Tiles) -> None:
    """Put our op in place of a product and of what it takes in."""
    import onnx_ir

    node, columns, rank = product.node, product.rows, product.rank
    given, end = node.inputs[0], node
    gate = None if product.bias is not None else _gate_behind(node, columns)
    if gate is not None:
        columns, end = columns // 2, gate
    elif product.bias is None:
        after = _only_user(node.outputs[0], "Reshape")
        shape = _shape_to(after.outputs[0]) if after is not None else None
        if shape is not None and len(shape) == 3 and shape[0] == 1 and shape[2] == columns:
            rank, end = 3, after
    if rank and _shape_to(given) is not None:
        given = given.producer().inputs[0]
    inputs = [given]
    for name, (weight, make) in product.parts.items():
        own = f"{name}.{'gated' if gate is not None else 'tiles'}"
        read[own] = tiles.of(weight, make, gate is not None)
        inputs.append(onnx_ir.Value(name=own))
    options = {"N": columns, "rank": rank, "gated": int(gate is not None)}
    made = [onnx_ir.node(product.kind, inputs, options, domain=DOMAIN)]
    if product.bias is not None:
        made.append(onnx_ir.node("Add", [made[0].outputs[0], product.bias]))
    graph.insert_before(end, made)
    _take_over(end.outputs[0], made[-1].outputs[0])
    _remove(graph, end)


def _is_known(node: Any) -> bool:
    """Whether a `GroupQueryAttention` is one that `Attend` does."""
    options = {name: one.value for name, one in node.attributes.items()}
    others = options.keys() - {"num_heads", "kv_num_heads", "scale"}
    if (
        others != {"do_rotary"}
        or options["do_rotary"] != 1
        or node.inputs[_SEPARATE_KEYS] is not None
    ):
        return False
    keys, cos = node.inputs[3], node.inputs[7]
    if keys.dtype is None or keys.dtype.name != "FLOAT" or cos.shape is None:
        return False
    size = keys.shape[3]
    return bool(size % (2 * WIDTH) == 0 and cos.shape[1] * 2 == size)


def _replace_attention(graph: Any, node: Any) -> None:
    import onnx_ir

    joined, _, _, keys, values, last, _, cos, sin, positions, *bias = node.inputs
    options = {name: node.attributes[name].value for name in ("num_heads", "scale")}
    made = onnx_ir.node(
        "Attend", [joined, keys, values, last, cos, sin, positions, *bias], options,
        domain=DOMAIN, num_outputs=3,
    )  # fmt: skip
    graph.insert_before(node, made)
    for old, new in zip(node.outputs, made.outputs, strict=True):
        _take_over(old, new)
    graph.remove(node, safe=True)


def _take_over(old: Any, new: Any) -> None:
    """Let a value replace another everywhere."""
    import onnx_ir

    new.shape, new.type, name = old.shape, old.type, old.name
    onnx_ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name, new.name = None, name


def _remove(graph: Any, node: Any) -> None:
    """Drop a node, and those before it that nothing else reads."""
    before = [value.producer() for value in node.inputs if value is not None]
    graph.remove(node, safe=True)
    for one in before:
        read = one is None or any(v.uses() or v.is_graph_output() for v in one.outputs)
        if not read and one.graph is graph:
            _remove(graph, one)


def _gate_behind(node: Any, rows: int) -> Any:
    """The last node of `silu(first half) * second half`, where a product has no other use."""
    split = _only_user(node.outputs[0], "Split")
    if split is None or len(split.outputs) != 2 or len(split.inputs) > 1 or rows % (2 * WIDTH):
        return None
    first, second = split.outputs
    opened = _only_user(first, "QuickGelu")
    if opened is None or opened.attributes["alpha"].as_float() != 1:
        return None
    product = _only_user(opened.outputs[0], "Mul")
    return product if product is not None and _only_user(second, "Mul") is product else None


def _only_user(value: Any, kind: str) -> Any:
    """The node that alone reads a value, if it is of a kind."""
    users = [user for user, _ in value.uses()]
    alone = len(users) == 1 and not value.is_graph_output() and users[0].op_type == kind
    return users[0] if alone else None


def _shape_to(value: Any) -> tuple[int, ...] | None:
    """The constant shape that a `Reshape` gives a value; None where none does."""
    node = value.producer()
    if node is None or node.op_type != "Reshape":
        return None
    sizes = node.inputs[1].const_value
    return None if sizes is None else tuple(map(int, sizes.numpy()))
