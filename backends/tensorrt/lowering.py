"""A round as torch-tensorrt compiles it: a program whose inputs are tensors and weights.

Caches come in and go out (`static/functional.py`). What the round does not read is no input, and
what it does not change is no output. Weights are inputs: engines hold none, all rounds share those
of the loaded checkpoint, and a file for one checkpoint is never taken for another of its form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, fx
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_structure

from specplan.backends.static.export import exported
from specplan.backends.static.functional import FunctionalRound
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.identity import weight_names

LEAST_SLOTS = 2
"""Cache slots that a round attends to at least: exports know no dimension of 1 that may grow."""


@dataclass(frozen=True)
class Profile:
    """The sizes that an engine is built for: how many slots a round attends to.

    Attributes:
        least: slots.
        usual: slots; kernels are chosen for this many.
        most: slots.
    """

    least: int
    usual: int
    most: int

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Profile:
        """That of a round: any text it has room for, usually three quarters full."""
        most = tensors[0].shape[1] - 1  # the last column is that of dead lanes
        return cls(LEAST_SLOTS, max(3 * most // 4, LEAST_SLOTS), most)


@dataclass(frozen=True)
class Lowered:
    """A round to be compiled.

    Attributes:
        program: its inputs are weights, then tensors; its outputs the report and what it changes.
        tensors: names of all tensors of the round, as `Interface.names` has them.
        weights: names of the weights that it reads.
        reads: names of the tensors that it reads.
        writes: names of those that it changes, in the order of the outputs behind the report.
        profile: sizes of the one that may differ from call to call, the slots attended to.
        given: what it was traced with, in the order of its inputs.
    """

    program: ExportedProgram
    tensors: tuple[str, ...]
    weights: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    profile: Profile
    given: tuple[Tensor, ...]


def lower_round(graph: RoundGraph, tensors: Sequence[Tensor]) -> Lowered:
    """Trace a round without effects, with its weights as inputs.

    Args:
        graph: the round, without kernels of our own: their ops have no converters.
        tensors: as `Interface.read` names them; none is changed.
    """
    names = graph.interface.names()
    with preserve_node_meta():  # which op of the plan each op comes from
        program = exported(FunctionalRound(graph, flat=True), tensors)
    writes = _drop_unchanged(program, graph.interface.written())
    named, given = weight_names(graph.models), iter(zip(names, tensors, strict=True))
    specs: list[InputSpec] = []
    weights: dict[str, Tensor] = {}
    reads: dict[str, Tensor] = {}
    first: dict[str, fx.Node] = {}
    holders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(holders, program.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            (name, value), used = next(given), reads
        else:
            value, used = _constant(program, spec.target or ""), weights
            name = named.get(value.data_ptr(), "") if value.numel() else ""
        if name in first:  # tied weights
            node.replace_all_uses_with(first[name])
        if not node.users:
            program.graph.erase_node(node)
        elif name:
            first[name], used[name] = node, value
            specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
        else:
            specs.append(spec)
    inputs = (*weights.values(), *reads.values())
    made = _with_inputs(program, specs, inputs)
    return Lowered(
        program=made,
        tensors=tuple(names),
        weights=tuple(weights),
        reads=tuple(reads),
        writes=writes,
        profile=Profile.of(tensors),
        given=inputs,
    )


def _constant(program: ExportedProgram, name: str) -> Tensor:
    known = program.constants.get(name)
    value = program.state_dict[name] if known is None else known
    assert isinstance(value, Tensor)
    return value


def _drop_unchanged(program: ExportedProgram, written: Sequence[str]) -> tuple[str, ...]:
    """Leave out outputs that are inputs: the round does not change them.

    Returns:
        Names of the others, behind the report.
    """
    (output,) = program.graph.find_nodes(op="output")
    report, *after = output.args[0]
    changed = [
        (name, node) for name, node in zip(written, after, strict=True) if node.op != "placeholder"
    ]
    output.args = ((report, *(node for _, node in changed)),)
    specs = [
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None)
        for node in output.args[0]
    ]
    program.graph_signature.output_specs[:] = specs
    return tuple(name for name, _ in changed)


def _with_inputs(
    program: ExportedProgram, specs: list[InputSpec], inputs: tuple[Tensor, ...]
) -> ExportedProgram:
    """A program of this graph, whose placeholders are as `specs` says."""
    outputs = tuple([None] * len(program.graph_signature.output_specs))
    call = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=tree_structure((inputs, {})),
        out_spec=tree_structure(outputs),
    )
    constants = {spec.target for spec in specs if spec.target is not None}
    return ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=ExportGraphSignature(specs, program.graph_signature.output_specs),
        state_dict={},
        range_constraints=program.range_constraints,
        module_call_graph=[ModuleCallEntry("", call)],
        example_inputs=(inputs, {}),
        constants={name: value for name, value in program.constants.items() if name in constants},
        verifiers=program.verifiers,
    )
