"""Rewrites of a round's ONNX into operators and types that TensorRT has.

What they change of a round's results: numbers that were float64 (draws, cumulative laws) become
float32, so that a sampled token may differ where a draw falls within 1e-7 of a boundary. All others
are exact: whole numbers that go through float32 are counts far below 2^24.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def legalise(model: Any) -> None:
    """Rewrite a model of `onnx_ir` in place.

    * DOUBLE becomes FLOAT, in inputs too;
    * UINT8, which TensorRT has at the ends of a graph only, becomes INT32;
    * `Clip` of whole numbers becomes `Max` and `Min`;
    * `CumSum` of whole numbers goes through FLOAT;
    * scatters of booleans go through INT32.
    """
    _replace_types(model, {"DOUBLE": "FLOAT", "UINT8": "INT32"})
    for node in list(model.graph):
        kind = node.inputs[0].dtype.name if node.inputs and node.inputs[0] is not None else ""
        if node.op_type == "Clip" and kind in ("INT32", "INT64"):
            _clip(model.graph, node)
        elif node.op_type == "CumSum" and kind in ("INT32", "INT64"):
            _through(model.graph, node, (0,), "FLOAT")
        elif node.op_type in ("ScatterElements", "ScatterND") and kind == "BOOL":
            _through(model.graph, node, (0, 2), "INT32")


def _replace_types(model: Any, types: dict[str, str]) -> None:
    import onnx_ir as ir

    new = {ir.DataType[old]: ir.DataType[name] for old, name in types.items()}
    graph = model.graph
    for value in _values(graph):
        if value.dtype in new:
            value.dtype = new[value.dtype]
        constant = value.const_value
        if constant is not None and constant.dtype in new:
            numbers = constant.numpy().astype(new[constant.dtype].numpy())
            value.const_value = ir.tensor(np.ascontiguousarray(numbers), name=constant.name)
    for node in graph:
        target = node.attributes.get("to") if node.op_type == "Cast" else None
        if target is not None and ir.DataType(target.value) in new:
            node.attributes["to"] = ir.AttrInt64("to", int(new[ir.DataType(target.value)]))
        filled = node.attributes.get("value") if node.op_type == "ConstantOfShape" else None
        if filled is not None and filled.value.dtype in new:
            numbers = filled.value.numpy().astype(new[filled.value.dtype].numpy())
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(numbers))


def _values(graph: Any) -> Iterable[Any]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _clip(graph: Any, node: Any) -> None:
    """Bounds that are missing bound nothing."""
    import onnx_ir as ir

    value, *bounds = node.inputs
    for op, bound in zip(("Max", "Min"), bounds, strict=False):
        if bound is None:
            continue
        made = ir.node(op, inputs=[value, bound])
        _describe(made, node, node.outputs[0].dtype)
        graph.insert_before(node, made)
        value = made.outputs[0]
    _take_place(graph, node, value)


def _through(graph: Any, node: Any, places: tuple[int, ...], kind: str) -> None:
    """Cast some inputs of a node, and its output back."""
    import onnx_ir as ir

    before, wanted = node.outputs[0].dtype, ir.DataType[kind]
    for place in places:
        cast = ir.node("Cast", inputs=[node.inputs[place]], attributes={"to": int(wanted)})
        _describe(cast, node, wanted)
        graph.insert_before(node, cast)
        node.replace_input_with(place, cast.outputs[0])
    again = ir.node(node.op_type, inputs=list(node.inputs), attributes=dict(node.attributes))
    _describe(again, node, wanted)
    back = ir.node("Cast", inputs=[again.outputs[0]], attributes={"to": int(before)})
    _describe(back, node, before)
    graph.insert_before(node, [again, back])
    _take_place(graph, node, back.outputs[0])


def _describe(made: Any, of: Any, dtype: Any) -> None:
    """Give a new node the source of the one it stands for."""
    made.metadata_props.update(of.metadata_props)
    made.outputs[0].dtype = dtype
    made.outputs[0].shape = of.outputs[0].shape


def _take_place(graph: Any, node: Any, value: Any) -> None:
    """Remove a node whose result another value is."""
    from onnx_ir import convenience

    old = node.outputs[0]
    name = old.name
    convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    old.name, value.name = None, name
