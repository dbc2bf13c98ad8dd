"""A traced round without what is known before it runs.

A round computes masks, parents and depths as tensors even where all requests share them. Here what
follows from shapes alone becomes a constant, and ops that a constant leaves without effect go.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

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
