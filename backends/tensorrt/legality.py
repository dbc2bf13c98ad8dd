"""Whether TensorRT takes a round: every node against the table, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specplan.backends.onnx_export.exporting import source_of
from specplan.backends.tensorrt.operators import OPERATORS, OPSETS, VERSION
from specplan.ir.errors import MissingCapabilityError


@dataclass(frozen=True)
class Illegal:
    """A node that TensorRT does not take.

    Attributes:
        op: the ONNX operator.
        reason: what is wrong with it.
        source: the line of code that it comes from, as far as it is known.
    """

    op: str
    reason: str
    source: str


def illegal_nodes(model: Any) -> tuple[Illegal, ...]:
    """Nodes of a model of `onnx_ir` that TensorRT does not take, in the order of the graph."""
    return tuple(
        Illegal(node.op_type, reason, source_of(node))
        for node in model.graph
        for reason in _reasons(node)
    )


def require_legal(model: Any, name: str) -> None:
    """Refuse a model that TensorRT does not take.

    Args:
        model: of `onnx_ir`.
        name: of the round.

    Raises:
        MissingCapabilityError: names the first operator, what is wrong with it and its source.
    """
    opset = model.graph.opset_imports.get("", 0)
    if opset not in OPSETS:
        raise MissingCapabilityError(f"TensorRT {VERSION} takes no ONNX of opset {opset}")
    found = illegal_nodes(model)
    if found:
        first, others = found[0], len(found) - 1
        more = f" (and {others} more)" if others else ""
        raise MissingCapabilityError(
            f"TensorRT {VERSION} does not take round {name!r}: {first.op}: {first.reason}{more}",
            where=first.source,
            remedy="Choose another backend, or a plan without that op.",
        )


def _reasons(node: Any) -> Iterator[str]:
    known = OPERATORS.get(node.op_type)
    if known is None or node.domain not in ("", "ai.onnx"):
        yield "there is no such operator"
        return
    places = range(len(node.inputs)) if known.data is None else known.data
    data = [node.inputs[place] for place in places if place < len(node.inputs)]
    given = {value.dtype.name for value in data if value is not None and value.dtype is not None}
    wrong = sorted(given - known.types)
    if wrong:
        yield f"no kernels for {', '.join(wrong)}"
    reason = None if known.restriction is None else known.restriction(node)
    if reason is not None:
        yield reason
