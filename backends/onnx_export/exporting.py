"""A round as an ONNX model: what it writes comes out; weights are named, their bytes left out."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.traceback import preserve_node_meta

from specplan.backends.onnx_export.memory import AFTER, in_place, put_in_order
from specplan.backends.onnx_export.writes import without_writes
from specplan.backends.static.export import exported
from specplan.backends.static.functional import FunctionalRound
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.identity import weight_names
from specplan.backends.static.traced.joined_attention import angles_of
from specplan.backends.static.traced.round_run import PLAN_OP
from specplan.ir.errors import MissingCapabilityError

OPSET = 23
"""The first with `Attention` and `RMSNormalization`."""
REPORT = "report"
"""The first output."""
NOWHERE = "the checkpoint"
"""Where the model says that its weights are."""


@dataclass(frozen=True)
class Exported:
    """A round as ONNX.

    Attributes:
        model: of `onnx_ir`.
        weights: names of initializers whose bytes it does not hold.
        in_place: inputs whose memory may be that of their outputs.
    """

    model: Any
    weights: tuple[str, ...]
    in_place: tuple[str, ...]


def export_round(graph: RoundGraph, tensors: Sequence[Tensor]) -> Exported:
    """The round as an ONNX model.

    Inputs are those of `Interface.names`; outputs are `report` and those of `Interface.written`
    that the round changes, each with `AFTER` behind its name.

    Args:
        graph: the round.
        tensors: as `Interface.read` names them, for their shapes.

    Raises:
        MissingCapabilityError: names the first op that ONNX has no form for, and where it comes
            from.
    """
    from specplan.backends.onnx_export.translations import TRANSLATIONS

    interface, slots = graph.interface, tensors[0].shape[1]
    graph.angles = {name: angles_of(graph.models[name], slots) for name in graph.fused.joined}
    with torch.no_grad(), _quiet(), preserve_node_meta():
        program = exported(FunctionalRound(graph), tensors)
        without_writes(program)
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                custom_translation_table=TRANSLATIONS,
                optimize=False,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise _refusal(program, error) from error
        assert made is not None
        model = made.model
        _name_plan_ops(model, made.exported_program)
        weights = _weights_as_inputs(model.graph, weight_names(graph.models))
        _simplify(model)
    _name(model.graph, interface.names(), [REPORT, *(name + AFTER for name in interface.written())])
    _drop_unchanged(model.graph)
    read = _weights_elsewhere(model.graph, weights)
    put_in_order(model.graph)
    return Exported(model, read, tuple(in_place(model.graph)))


def source_of(node: Any) -> str:
    """The op of the plan that a node comes from, else its line of code, as far as it says."""
    trace = node.metadata_props.get("pkg.torch.onnx.stack_trace", "")
    return node.metadata_props.get(PLAN_OP) or _innermost(trace)


def _name_plan_ops(model: Any, program: ExportedProgram | None) -> None:
    """Write into each node of a model the op of the plan that it comes from."""
    if program is None:
        return
    origins = {
        node.name: node.meta.get("custom", {}).get(PLAN_OP, "") for node in program.graph.nodes
    }
    for node in model.graph:
        traced = re.match(r"%(\w+) :", node.metadata_props.get("pkg.torch.onnx.fx_node", ""))
        if traced is not None and origins.get(traced[1]):
            node.metadata_props[PLAN_OP] = origins[traced[1]]


def _refusal(program: ExportedProgram, error: Exception) -> MissingCapabilityError:
    op = re.search(r"OpOverload\(op='([\w.]+)', overload='(\w+)'\)", str(error))
    if op is None:
        cause = re.search(r"<class '[\w.]+'>: .*", str(error))
        what, source = cause[0] if cause else type(error).__name__, ""
    else:
        what, source = f"ONNX has no form for the op {op[1]}", ""
        called = (n for n in program.graph.nodes if str(n.target) == f"{op[1]}.{op[2]}")
        node = next(called, None)
        if node is not None:
            source = node.meta.get("custom", {}).get(PLAN_OP) or _innermost(node.stack_trace or "")
    return MissingCapabilityError(
        f"ONNX export: {what}", where=source, remedy="Choose another backend."
    )


def _innermost(trace: str) -> str:
    """The last `file, line` of a trace."""
    places = re.findall(r'File "(.*)", line (\d+)', trace)
    return f"{places[-1][0]}:{places[-1][1]}" if places else ""


@contextmanager
def _quiet() -> Iterator[None]:
    """No advice about packages that exporting can do without, or about what was not folded."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    logs.append(logging.getLogger("torch.onnx._internal.exporter._registration"))
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, about itself
            yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def _weights_as_inputs(graph: Any, name_of: Mapping[int, str]) -> dict[str, Any]:
    """Make initializers that are weights of a checkpoint inputs with its names for them.

    Returns:
        The weights' tensors by name.
    """
    from onnx_ir import convenience

    tensors: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for value in list(graph.initializers.values()):
        raw = getattr(value.const_value, "raw", None)
        name = name_of.get(raw.data_ptr()) if isinstance(raw, Tensor) and raw.numel() else None
        if name is None:
            continue
        del graph.initializers[value.name]
        if name in values:
            convenience.replace_all_uses_with(value, values[name])
            continue
        tensors[name], values[name] = value.const_value, value
        value.name, value.const_value = name, None
        value.shape, value.dtype = tensors[name].shape, tensors[name].dtype
        graph.inputs.append(value)
    return tensors


def _weights_elsewhere(graph: Any, tensors: Mapping[str, Any]) -> tuple[str, ...]:
    """Make these inputs initializers whose bytes the model does not hold.

    Returns:
        Names of those that the model reads; the others are left out.
    """
    import onnx_ir

    for value in [value for value in graph.inputs if value.name in tensors]:
        graph.inputs.remove(value)
        if not value.uses():
            continue
        tensor = tensors[value.name]
        value.const_value = onnx_ir.ExternalTensor(
            NOWHERE,
            offset=0,
            length=tensor.nbytes,
            dtype=tensor.dtype,
            shape=tensor.shape,
            name=value.name,
        )
        graph.register_initializer(value)
    return tuple(name for name in tensors if name in graph.initializers)


def _simplify(model: Any) -> None:
    """Fold constants, which weights are none of now, and drop what is computed twice.

    The exporter's own patterns are left out: they took three quarters of its time, and ONNX Runtime
    has its own.
    """
    from onnx_ir.passes import Sequential, common
    from onnxscript import optimizer

    common.InlinePass()(model)
    for _ in range(2):  # what is folded shows what more can be
        optimizer.fold_constants_ir(model, onnx_shape_inference=True)
        common.RemoveUnusedNodesPass()(model)
    Sequential(
        common.IdentityEliminationPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedNodesPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )(model)


def _name(graph: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Name inputs, those that weights became aside, and outputs, each of which is its own value."""
    for value, name in zip(graph.inputs, inputs, strict=False):
        value.name = name
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name


def _drop_unchanged(graph: Any) -> None:
    """Leave out outputs that are their own inputs: the round does not write them."""
    given = {value.name: value for value in graph.inputs}

    def unchanged(value: Any) -> bool:
        own = given.get(value.name.removesuffix(AFTER))
        while value.producer() is not None and value.producer().op_type == "Identity":
            value = value.producer().inputs[0]
        return own is not None and value is own

    changed = [value for value in graph.outputs if not unchanged(value)]
    graph.outputs.clear()
    graph.outputs.extend(changed)
