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
