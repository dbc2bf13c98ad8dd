"""Named rewrites of an exported round into the ops of ONNX Runtime's own set (`com.microsoft`).

Each is a function from a graph of `onnx_ir` to how many places it changed, named as in `FUSIONS`.
Rotation, writes to the cache and attention are one op already when a round is traced
(`specplan.backends.static.traced.joined_attention`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import onnx_ir
from onnx_ir.passes import common

from specplan.ir.errors import MissingCapabilityError

CONTRIB = "com.microsoft"


def reshape_back(graph: Any) -> int:
    """`Reshape(Reshape(x))` -> `Reshape(x)`, or `x` where it has that shape already."""
    changed = 0
    for last in _nodes(graph, "Reshape"):
        first = last.inputs[0].producer()
        given = first.inputs[0] if first is not None and first.op_type == "Reshape" else None
        known = _shape(last.outputs[0])
        if given is not None and known is not None and _shape(given) == known:
            onnx_ir.convenience.replace_all_uses_with(last.outputs[0], given)
        elif given is not None:
            last.replace_input_with(0, given)
        changed += given is not None
    common.RemoveUnusedNodesPass()(onnx_ir.Model(graph, ir_version=10))
    return changed


def same_order(graph: Any) -> int:
    """`Transpose` that leaves all axes where they are -> its input.

    The exporter puts one before and one behind each read of a cache by places, and ONNX Runtime
    copies the whole cache for it.
    """
    changed = 0
    for node in _nodes(graph, "Transpose"):
        order, value = node.attributes.get("perm"), node.outputs[0]
        if order is None or value.is_graph_output():
            continue
        if list(order.as_ints()) == sorted(order.as_ints()):
            onnx_ir.convenience.replace_all_uses_with(value, node.inputs[0])
            graph.remove(node, safe=True)
            changed += 1
    return changed


def skip_norm(graph: Any) -> int:
    """`RMSNormalization(Add(a, b))` -> `SkipSimplifiedLayerNormalization(a, b)`, sum included.

    Not in float64, which the op does not take.
    """
    changed = 0
    for norm in _nodes(graph, "RMSNormalization"):
        added, scale = norm.inputs[0].producer(), norm.inputs[1]
        if added is None or added.op_type != "Add" or scale.producer() is not None:
            continue
        one, other = added.inputs
        if one.dtype not in (onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16):
            continue
        if _shape(one) is None or _shape(one) != _shape(other) or not _over_last(norm):
            continue
        epsilon = norm.attributes.get("epsilon")
        fused = onnx_ir.node(
            "SkipSimplifiedLayerNormalization",
            [one, other, scale],
            {"epsilon": 1e-5 if epsilon is None else epsilon.as_float()},
            domain=CONTRIB,
            num_outputs=4,
        )
        _put(graph, added, fused)
        _take_over(graph, norm, norm.outputs[0], fused.outputs[0])
        _take_over(graph, added, added.outputs[0], fused.outputs[3])
        for unused in fused.outputs[1:3]:
            unused.name = ""
        changed += 1
    return changed


def gated_activation(graph: Any) -> int:
    """`Mul(x, Sigmoid(x))` -> `QuickGelu(x)` with alpha 1: SiLU as one op, in float32 alone."""
    changed = 0
    for sigmoid in _nodes(graph, "Sigmoid"):
        given, result = sigmoid.inputs[0], sigmoid.outputs[0]
        users = [user for user, _ in result.uses()]
        if given.dtype != onnx_ir.DataType.FLOAT or len(users) != 1:
            continue
        if users[0].op_type != "Mul" or given not in users[0].inputs:
            continue
        fused = onnx_ir.node("QuickGelu", [given], {"alpha": 1.0}, domain=CONTRIB)
        _put(graph, users[0], fused)
        _take_over(graph, users[0], users[0].outputs[0], fused.outputs[0])
        graph.remove(sigmoid, safe=True)
        changed += 1
    return changed


FUSIONS: Mapping[str, tuple[Callable[[Any], int], str]] = {
    "reshape_back": (reshape_back, ""),
    "same_order": (same_order, ""),
    "skip_norm": (skip_norm, "SkipSimplifiedLayerNormalization"),
    "gated_activation": (gated_activation, "QuickGelu"),
}
"""By name: the rewrite, and the op that it needs, if any."""


def fuse(model: Any, ops: Collection[str], wanted: Collection[str] | None = None) -> dict[str, int]:
    """Rewrite a model in place, each op checked first.

    Args:
        model: of `onnx_ir`.
        ops: of the runtime's own set, by name.
        wanted: names of rewrites; None for all that the runtime has the ops for.

    Returns:
        How many places each changed.

    Raises:
        MissingCapabilityError: a rewrite that is wanted needs an op that the runtime lacks.
    """
    changed = {}
    for name, (rewrite, op) in FUSIONS.items():
        if wanted is not None and name not in wanted:
            continue
        if not op or op in ops:
            changed[name] = rewrite(model.graph)
        elif wanted is not None:
            raise MissingCapabilityError(
                f"the rewrite {name} needs the op {op}, which this ONNX Runtime lacks",
                where="backend onnxruntime",
                remedy="Install another version: pip install --upgrade onnxruntime",
            )
    if any(node.domain == CONTRIB for node in model.graph):
        model.opset_imports[CONTRIB] = 1
    return changed


def _nodes(graph: Any, op: str) -> list[Any]:
    return [node for node in graph if node.op_type == op]


def _shape(value: Any) -> tuple[Any, ...] | None:
    return None if value.shape is None else tuple(value.shape)


def _over_last(norm: Any) -> bool:
    axis, rank = norm.attributes.get("axis"), len(norm.inputs[0].shape or ())
    return axis is None or axis.as_int() in (-1, rank - 1)


def _put(graph: Any, place: Any, node: Any) -> None:
    """Put a node before another, with what is known of where that came from."""
    node.metadata_props.update(place.metadata_props)
    node.name = f"{place.name or node.op_type}_fused"
    graph.insert_before(place, node)


def _take_over(graph: Any, node: Any, old: Any, new: Any) -> None:
    """Let one value replace another everywhere, and drop the node that made it."""
    new.shape, new.dtype, name = old.shape, old.dtype, old.name
    onnx_ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    new.name = name
