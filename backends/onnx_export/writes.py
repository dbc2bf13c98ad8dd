"""A traced round without ops that write in place, so that the exporter need not trace it again.

`torch.onnx.export` decomposes the program that it is given, which traces it once more: a third of
the time that a round takes to compile. All that a round needs of that is that no op writes to its
operand, and that a few ops have the names under which ONNX has forms for them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

_ATEN = torch.ops.aten
_NAMES = {
    _ATEN.__and__.Tensor: _ATEN.bitwise_and.Tensor,
    _ATEN.__or__.Tensor: _ATEN.bitwise_or.Tensor,
    _ATEN.detach_.default: _ATEN.alias.default,
}
_CASTS = {_ATEN.to.dtype: 1, _ATEN.to.device: 2, _ATEN.to.dtype_layout: None}
"""Where they name the number type: the argument's place, None for the one named `dtype`."""


def without_writes(program: ExportedProgram) -> bool:
    """Rewrite a program, in place, so that no op writes to its operand.

    Returns:
        Whether it is as the exporter wants it, and stays so when it is to be decomposed; else it is
        left as it was: what is written is an input, or is read through another view.
    """
    graph = program.graph_module.graph
    order = {node: place for place, node in enumerate(graph.nodes)}
    memory: dict[fx.Node, fx.Node] = {}
    written: list[tuple[fx.Node, Any]] = []
    for node in graph.nodes:
        operand, writes = _aliased(node)
        memory[node] = node if operand is None else memory[operand]
        if not writes:
            continue
        pure = _pure(node.target)
        if pure is None or operand is None:
            return False
        own = memory[operand]
        views = (one for one, root in memory.items() if root is own and one not in (operand, node))
        seen = any(order[user] > order[node] for one in views for user in one.users)
        if own.op == "placeholder" or seen:
            return False
        memory[node] = node
        written.append((node, pure))
    for node, pure in written:
        later = [user for user in node.args[0].users if order[user] > order[node]]  # type: ignore[union-attr]
        for user in later:
            user.replace_input_with(node.args[0], node)  # type: ignore[arg-type]
        node.target = pure
    for node in graph.nodes:
        _rename(node)
    program.graph_module.recompile()
    program.run_decompositions = lambda *_: program
    return True


def _aliased(node: fx.Node) -> tuple[fx.Node | None, bool]:
    """The operand whose memory a node's value may lie in, and whether the op writes to it."""
    if node.op == "call_function" and "getitem" in str(node.target):
        return node.args[0], False  # type: ignore[return-value]
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return None, False
    writes = schema.is_mutable and node.target not in _NAMES
    for argument, given in zip(schema.arguments, node.args, strict=False):
        if argument.alias_info is not None and isinstance(given, fx.Node):
            return given, writes
    return None, writes


def _pure(target: Any) -> Any:
    """The same op without the write; None where there is none."""
    name, overload = target._schema.name.removeprefix("aten::"), target._overloadname
    packet = getattr(_ATEN, name.removesuffix("_"), None) if name.endswith("_") else None
    return getattr(packet, overload, None)


def _rename(node: fx.Node) -> None:
    """Give an op the name under which the exporter has a form for it."""
    if node.target in _NAMES:
        node.target = _NAMES[node.target]
    elif node.target in _CASTS:
        place = _CASTS[node.target]
        node.kwargs = {"dtype": node.kwargs["dtype"] if place is None else node.args[place]}
        node.target, node.args = _ATEN._to_copy.default, node.args[:1]
