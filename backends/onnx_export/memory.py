"""Which values of an exported round may share the memory of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

AFTER = ".after"
"""What the names of outputs have after those of the inputs that they replace."""
WRITERS: dict[str, dict[int, int]] = {
    "ScatterND": {0: 0},
    "ScatterElements": {0: 0},
    "GroupQueryAttention": {1: 3, 2: 4},
}
"""Ops that write some places of an input, by output and input: the others they copy only where the
two differ in memory."""
_SCATTERS = frozenset({"ScatterND", "ScatterElements"})
"""Those of them whose second input says which places."""


def in_place(graph: Any) -> list[str]:
    """Inputs whose memory may be that of their outputs; see `versions`."""
    inputs = {value.name: value for value in graph.inputs}
    names = (output.name.removesuffix(AFTER) for output in graph.outputs)
    pairs = zip(names, graph.outputs, strict=True)
    return [n for n, output in pairs if n in inputs and versions(inputs[n], output)]


def versions(given: Any, output: Any) -> list[Any]:
    """What an input goes through until it is an output, that last, where all may share its memory.

    Each is made by an op that writes some places of the one before and leaves the others, and that
    comes after whatever else reads the one before, in every order in which the graph can run.
    Empty where this is not so.
    """
    made = [output]
    while made[0] is not given:
        last = made[0].producer()
        places = {} if last is None else WRITERS.get(last.op_type, {})
        if made[0] not in (outputs := [] if last is None else list(last.outputs)):
            return []
        place = places.get(outputs.index(made[0]))
        if place is None:
            return []
        before = last.inputs[place]
        earlier = _ancestors(last)
        if sum(value is before for value in last.inputs) > 1:
            return []
        if any(id(reader) not in earlier for reader, _ in before.uses()):
            return []
        made.insert(0, before)
    return made[1:]


def put_in_order(graph: Any) -> None:
    """Make ops that write into inputs wait for all that reads what they write into.

    Where neither depends on the other, a runtime chooses the order, and a round could not write in
    place: `versions` takes none. A pass that reads states of the text and one that writes those of
    drafted nodes are such a pair.
    """
    inputs = {value.name: value for value in graph.inputs}
    for output in graph.outputs:
        value = output
        while value is not inputs.get(output.name.removesuffix(AFTER)):
            last = value.producer()
            place = None if last is None else WRITERS.get(last.op_type, {}).get(value.index())
            if place is None:
                break
            value = last.inputs[place]
            if last.op_type in _SCATTERS:
                _wait(graph, last, value)


def _wait(graph: Any, writer: Any, before: Any) -> None:
    """Make a writer depend on all other readers of a value, but those that depend on it."""
    earlier = _ancestors(writer)
    for reader, _ in list(before.uses()):
        if id(reader) not in earlier and id(writer) not in (above := _ancestors(reader)):
            _tie(graph, writer, reader.outputs[0])
            earlier |= above


def _tie(graph: Any, writer: Any, read: Any) -> None:
    """Add nought, from a value that has to be there before, to the places that a writer writes."""
    import onnx_ir

    def constant(numbers: list[int]) -> Any:
        value = onnx_ir.tensor(numbers, dtype=onnx_ir.DataType.INT64)
        return onnx_ir.node("Constant", [], {"value": value})

    flat, start, one, nought = map(constant, ([-1], [0], [1], [0]))
    nodes = [flat, start, one, nought]
    for op, *given in (("Reshape", flat), ("Slice", start, one), ("Cast",), ("Mul", nought)):
        to = {"to": onnx_ir.DataType.INT64.value} if op == "Cast" else {}
        nodes.append(onnx_ir.node(op, [read, *(node.outputs[0] for node in given)], to))
        read = nodes[-1].outputs[0]
    nodes.append(onnx_ir.node("Add", [writer.inputs[1], read]))
    graph.insert_before(writer, nodes)
    writer.replace_input_with(1, nodes[-1].outputs[0])


def expose_versions(graph: Any, names: Sequence[str]) -> None:
    """Make what such inputs go through outputs, so that all can be given the input's memory.

    Each is named as the last of them, with a number behind.
    """
    inputs = {value.name: value for value in graph.inputs}
    for output in list(graph.outputs):
        name = output.name.removesuffix(AFTER)
        passed = versions(inputs[name], output)[:-1] if name in names else ()
        for number, value in enumerate(passed):
            value.name = f"{output.name}.{number}"
            graph.outputs.append(value)


def _ancestors(node: Any) -> set[int]:
    """A node, and all whose results it depends on."""
    ancestors, waiting = {id(node)}, [node]
    while waiting:
        for value in waiting.pop().inputs:
            above = None if value is None else value.producer()
            if above is not None and id(above) not in ancestors:
                ancestors.add(id(above))
                waiting.append(above)
    return ancestors
