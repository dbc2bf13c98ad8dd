"""What TensorRT's ONNX parser takes, as data: operators, their number types and restrictions.

Source: onnx/onnx-tensorrt, docs/operators.md of TensorRT 10.15 (opset 9 to 24). Operators that
rounds never hold are left out, and so refused; quantised types too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
        restriction: says what is wrong with a node beside its types; None where nothing is.
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
    found = node.attributes.get(name)
    return otherwise if found is None else float(found.value)


def _table() -> dict[str, Operator]:
    of_numbers = ("Add", "Div", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "Sub", "Abs", "Sign")
    of_floats = (
        "Ceil", "Clip", "Cos", "Erf", "Exp", "Floor", "Gemm", "IsInf", "LayerNormalization", "Log",
        "LogSoftmax", "MatMul", "RMSNormalization", "Reciprocal", "RotaryEmbedding", "Round",
        "Sigmoid", "Sin", "Softmax", "Sqrt", "Tanh",
    )  # fmt: skip
    compared = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    reduced = (
        "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
        "ReduceSum", "ReduceSumSquare",
    )  # fmt: skip
    placed = ("Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape", "Slice",
              "Split", "Tile", "Transpose", "Trilu")  # fmt: skip
    table = {
        **dict.fromkeys((*of_numbers, *compared), Operator(NUMBERS)),
        **dict.fromkeys(of_floats, Operator(FLOATS)),
        **dict.fromkeys(("And", "Not", "Or", "Xor"), Operator(frozenset({"BOOL"}))),
        **dict.fromkeys(reduced, Operator(NUMBERS, (0,), _constant(1, "axes"))),
        **dict.fromkeys(placed, Operator(ALL, (0,))),
        **dict.fromkeys(("Squeeze", "Unsqueeze"), Operator(ALL, (0,), _constant(1, "axes"))),
        **dict.fromkeys(("ArgMax", "ArgMin"), Operator(NUMBERS)),
        **dict.fromkeys(("ScatterElements", "ScatterND"), Operator(NUMBERS, (0, 2), _scatter)),
        **dict.fromkeys(("Identity", "Concat"), Operator(ALL)),
        "Attention": Operator(FLOATS, (0, 1, 2), _attention),
        "Cast": Operator(ALL),
        "ConstantOfShape": Operator(ALL, ()),
        "CumSum": Operator(FLOATS, (0,), _constant(1, "axis")),
        "Pad": Operator(NUMBERS, (0,)),
        "Range": Operator(NUMBERS),
        "Shape": Operator(ALL, (0,)),
        "TopK": Operator(NUMBERS, (0,), _top_k),
        "Where": Operator(ALL, (1, 2)),
    }
    return {**table, "Gelu": Operator(NUMBERS)}


OPERATORS: Mapping[str, Operator] = _table()
