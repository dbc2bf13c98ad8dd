"""What TensorRT's ONNX parser takes, as data, and the check of a round against it.

Source: onnx/onnx-tensorrt, docs/operators.md of TensorRT 10.15 (opset 9 to 24). Operators that no
round uses are left out, and so refused; quantised types too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from specplan.backends.onnx_export.exporting import source_of
from specplan.ir.errors import MissingCapabilityError

VERSION = "10.15"
"""Of TensorRT; its table is the newest one that this was written for."""
OPSETS = range(9, 25)

FLOATS = frozenset({"FLOAT", "FLOAT16", "BFLOAT16"})
NUMBERS = FLOATS | {"INT32", "INT64"}
ALL = NUMBERS | {"BOOL"}
_MOST_SORTED = 3840
"""`TopK` takes fewer elements than this."""


@dataclass(frozen=True)
class Operator:
    """What is taken of one operator.

    Attributes:
        types: number types of its data.
        data: places of the inputs that are data; all where None. Others are indices, sizes or axes.
        restriction: what else is wrong with a node, besides its types; None for nothing.
    """

    types: frozenset[str]
    data: tuple[int, ...] | None = None
    restriction: Callable[[Any], str | None] | None = None


def _constant(place: int, what: str) -> Callable[[Any], str | None]:
    """The input at a place is known when the engine is built, where there is one."""

    def check(node: Any) -> str | None:
        given = node.inputs[place] if len(node.inputs) > place else None
        known = given is None or given.const_value is not None
        return None if known else f"{what} depends on data"

    return check


def _attention(node: Any) -> str | None:
    given = [value for value in node.inputs if value is not None]
    if len(given) > 4 or len(node.outputs) > 1:
        return "it reads or gives a cache of its own"
    ranks = [len(value.shape) for value in given if value.shape is not None]
    if any(rank != 4 for rank in ranks):
        return f"its inputs have ranks {ranks}, not 4"
    return "softcap is not taken" if _number(node, "softcap") else None


def _top_k(node: Any) -> str | None:
    if _number(node, "sorted", 1) != 1:
        return "only sorted elements are taken"
    size = None if len(node.inputs) < 2 else node.inputs[1].const_value
    if size is None:
        return None  # a size that depends on data is taken, and checked as it runs
    count = int(size.numpy().reshape(-1)[0])
    return (
        None if count < _MOST_SORTED else f"{count} elements, fewer than {_MOST_SORTED} are taken"
    )


def _scatter(node: Any) -> str | None:
    reduction = node.attributes.get("reduction")
    plain = reduction is None or reduction.as_string() == "none"
    return None if plain else f"reduction {reduction.as_string()} is not taken"


def _number(node: Any, name: str, otherwise: float = 0) -> float:
    attribute = node.attributes.get(name)
    return otherwise if attribute is None else float(attribute.value)


_AXES, _AXIS = _constant(1, "axes"), _constant(1, "axis")
OPERATORS = {
    name: operator
    for names, operator in (
        ("Add Div Max Min Mod Mul Neg Pow Sub Abs Sign Gelu Range", Operator(NUMBERS)),
        ("Equal Greater GreaterOrEqual Less LessOrEqual ArgMax ArgMin", Operator(NUMBERS)),
        ("Ceil Clip Cos Erf Exp Floor Gemm IsInf LayerNormalization Log", Operator(FLOATS)),
        ("LogSoftmax MatMul RMSNormalization Reciprocal RotaryEmbedding", Operator(FLOATS)),
        ("Round Sigmoid Sin Softmax Sqrt Tanh", Operator(FLOATS)),
        ("And Not Or Xor", Operator(frozenset({"BOOL"}))),
        ("ReduceL2 ReduceLogSumExp ReduceMax ReduceMean", Operator(NUMBERS, (0,), _AXES)),
        ("ReduceMin ReduceProd ReduceSum ReduceSumSquare", Operator(NUMBERS, (0,), _AXES)),
        ("Expand Flatten Gather GatherElements GatherND Reshape Slice", Operator(ALL, (0,))),
        ("Split Tile Transpose Trilu Shape", Operator(ALL, (0,))),
        ("Squeeze Unsqueeze", Operator(ALL, (0,), _AXES)),
        ("ScatterElements ScatterND", Operator(NUMBERS, (0, 2), _scatter)),
        ("Identity Concat Cast", Operator(ALL)),
        ("Attention", Operator(FLOATS, (0, 1, 2), _attention)),
        ("ConstantOfShape", Operator(ALL, ())),
        ("CumSum", Operator(FLOATS, (0,), _AXIS)),
        ("Pad", Operator(NUMBERS, (0,))),
        ("TopK", Operator(NUMBERS, (0,), _top_k)),
        ("Where", Operator(ALL, (1, 2))),
    )
    for name in names.split()
}


class Illegal(NamedTuple):
    """A node that TensorRT does not take: its operator, why, and the op of the plan it is of."""

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
    illegal = illegal_nodes(model)
    if illegal:
        first, others = illegal[0], len(illegal) - 1
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
