"""A round exported: traced, without what is known before it runs, as a flat program of tensor ops.

A round computes masks, parents and depths as tensors even where all requests share them. Folding
makes constants of what follows from shapes alone, and drops ops that a constant leaves without
effect. A flat program needs no compiler, and runs no Python of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram, export
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx.subgraph_rewriter import replace_pattern_with_filters

from specplan.backends.kernels import ops  # noqa: F401  (registers them)
from specplan.backends.static.buckets import Bucket
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import free_sizes
from specplan.backends.static.session import Program

_ATEN = torch.ops.aten
_FROM_SHAPES = {
    _ATEN.zeros_like.default,
    _ATEN.ones_like.default,
    _ATEN.full_like.default,
    _ATEN.new_zeros.default,
    _ATEN.new_full.default,
}
"""Ops that look at no entry of what they are given."""
_KINDS = (torch.int64, torch.bool)
"""Number types of what is folded: no weights."""
_AND = {_ATEN.__and__.Tensor, _ATEN.bitwise_and.Tensor, _ATEN.logical_and.default}
_WHERE = {_ATEN.where.self, _ATEN.where.ScalarOther}
_ALIASES = {_ATEN.alias.default, _ATEN.detach_.default, _ATEN.lift_fresh_copy.default}
_OURS = torch.ops.specplan
_MULTIPLE = 16
"""Of which a row's entries must be a multiple, so that rows begin where wide loads may."""


def exported(module: nn.Module, tensors: Sequence[Tensor]) -> ExportedProgram:
    """A module of a round's tensors as `torch.export` traces it, free in the slots attended to."""
    with torch.no_grad():
        sizes = (free_sizes(tensors),)
        program = export(module, tuple(tensors), dynamic_shapes=sizes, strict=False)
    fold(program)
    return program


def flat_program(graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> Program:
    """A round traced for a bucket's tensors; its constants are tensors, as captures want them."""
    flat = exported(graph, tensors).module()
    with_layer_kernels(flat, graph.fused.layers)
    return cast(Program, flat)


def fold(program: ExportedProgram) -> None:
    """Fold a program, in place."""
    graph = program.graph
    graph.eliminate_dead_code()
    known = _known(program)
    for node in list(graph.nodes):
        same = _unchanged(node, known)
        if same is not None:
            node.replace_all_uses_with(same)
    wanted = [node for node in known if any(user not in known for user in node.users)]
    for number, node in enumerate(wanted):
        if node.op != "placeholder":
            _lift(program, node, f"known_{number}", known[node])
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _known(program: ExportedProgram) -> dict[fx.Node, Tensor]:
    """Tensors that are the same in all rounds, by the node that gives them."""
    lifted = program.graph_signature.inputs_to_lifted_tensor_constants
    written = _written(program.graph)
    known: dict[fx.Node, Tensor] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node in written or not isinstance(value, Tensor) or value.dtype not in _KINDS:
            continue
        if not all(isinstance(size, int) for size in value.shape):
            continue
        if node.op == "placeholder" and node.name in lifted:
            known[node] = program.constants[lifted[node.name]]
        elif node.op == "call_function" and node.target in _FROM_SHAPES:
            fill = 0 if "zero" in str(node.target) else 1
            if "full" in str(node.target):
                fill = node.args[-1]
            known[node] = torch.full(value.shape, fill, dtype=value.dtype, device=value.device)
        elif node.op == "call_function" and _follows(node, known):
            known[node] = _value(node, known)
    return known


def _follows(node: fx.Node, known: dict[fx.Node, Tensor]) -> bool:
    """Whether an op's result follows from known tensors."""
    if node.target in _ALIASES:
        return all(each in known for each in node.all_input_nodes)
    schema = getattr(node.target, "_schema", None)
    pure = schema is not None and not schema.is_mutable
    return pure and all(each in known for each in node.all_input_nodes)


def _value(node: fx.Node, known: dict[fx.Node, Tensor]) -> Tensor:
    if node.target in _ALIASES:
        return known[node.all_input_nodes[0]]
    given: Any = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
    return node.target(*given[0], **given[1])  # type: ignore[no-any-return, operator]


def _written(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose memory some op writes to, through views too."""
    written: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or node.target in _ALIASES:
            continue
        views = node in written and any(each.alias_info is not None for each in schema.returns)
        for argument, given in zip(schema.arguments, node.args, strict=False):
            info = argument.alias_info
            if isinstance(given, fx.Node) and info is not None and (info.is_write or views):
                written.add(given)
    return written


def _unchanged(node: fx.Node, known: dict[fx.Node, Tensor]) -> fx.Node | None:
    """What a node is equal to, where what it does to it changes nothing."""
    if node.op != "call_function" or node in known:
        return None
    candidates: list[tuple[Any, bool]] = []
    if node.target in _AND:
        one, other = node.args
        candidates = [(one, _is_true(other, known)), (other, _is_true(one, known))]
    elif node.target in _WHERE:
        flag, chosen, *_ = node.args
        candidates = [(chosen, _is_true(flag, known))]
    elif node.target is _ATEN.gather.default:
        source, _, place = node.args
        candidates = [(source, _is_in_order(place, known))]
    for same, unchanged in candidates:
        if unchanged and isinstance(same, fx.Node) and _alike(same, node):
            return same
    return None


def _is_true(node: Any, known: dict[fx.Node, Tensor]) -> bool:
    value = known.get(node)
    return value is not None and value.dtype == torch.bool and bool(value.all())


def _is_in_order(node: Any, known: dict[fx.Node, Tensor]) -> bool:
    """Whether places `[B, N]` are 0, 1, and so on in each row."""
    value = known.get(node)
    if value is None or value.dim() != 2:
        return False
    return torch.equal(value, torch.arange(value.shape[1], device=value.device).expand_as(value))


def _alike(one: fx.Node, other: fx.Node) -> bool:
    mine, yours = one.meta["val"], other.meta["val"]
    return bool(mine.shape == yours.shape and mine.dtype == yours.dtype)


def _lift(program: ExportedProgram, node: fx.Node, name: str, value: Tensor) -> None:
    """Make a node an input that is a constant of the program."""
    signature = program.graph_signature
    first = next(
        place for place, spec in enumerate(signature.input_specs)
        if spec.kind == InputKind.USER_INPUT
    )  # fmt: skip
    inputs = [each for each in program.graph.nodes if each.op == "placeholder"]
    with program.graph.inserting_before(inputs[first]):
        lifted = program.graph.placeholder(name)
    lifted.meta["val"] = node.meta["val"]
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(lifted.name), name)
    signature.input_specs.insert(first, spec)
    program.constants[name] = value.contiguous().clone()
    node.replace_all_uses_with(lifted)


def with_layer_kernels(program: fx.GraphModule, dtypes: Collection[str]) -> None:
    """Put kernels into a traced program, in place.

    Args:
        program: as `torch.export` gives it.
        dtypes: number types that there are kernels for, as torch names them.
    """
    if not dtypes:
        return

    def served(node: fx.Node) -> bool:
        value = node.meta["val"]
        fits = value.shape[-1] % _MULTIPLE == 0
        return fits and str(value.dtype).removeprefix("torch.") in dtypes

    for node in program.graph.nodes:
        if node.target is _ATEN.rms_norm.default and len(node.args) == 4 and served(node):
            hidden, shape, weight, epsilon = node.args
            known = len(shape) == 1 and weight is not None and epsilon is not None
            if known and weight.meta["val"].dtype == node.meta["val"].dtype:
                node.target, node.args = _OURS.rms_norm.default, (hidden, weight, epsilon)
    replace_pattern_with_filters(
        program, _gated, _gated_by_kernel, [lambda match, *_: served(match.returning_nodes[0])]
    )
    program.recompile()


def _gated(joined: Tensor) -> Tensor:
    """As `RotaryLayer` traces it."""
    halves = _ATEN.chunk.default(joined, 2, -1)
    return _ATEN.mul_.Tensor(_ATEN.silu.default(halves[0]), halves[1])  # type: ignore[no-any-return]


def _gated_by_kernel(joined: Tensor) -> Tensor:
    return _OURS.gated_silu.default(joined)  # type: ignore[no-any-return]
