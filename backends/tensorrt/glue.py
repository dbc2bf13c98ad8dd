"""What is around a round's engines, as JSON: calls of engines and torch ops, in order.

torch-tensorrt saves compiled modules by pickle. Here engines are files of their own, and the graph
that calls them is a list of steps; reading one runs nothing but the ops that it names.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from torch import Tensor, fx
from torch._ops import OpOverload

from specplan.ir.errors import MissingCapabilityError

ENGINE = "engine"
_NAMESPACES = ("aten", "prims")
_OPERATORS = (
    "getitem",
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "neg",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
)
_NAMED = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


@dataclass(frozen=True)
class Step:
    """One call.

    Attributes:
        name: of its result.
        op: `engine.0`, `aten.add.Tensor`, `operator.getitem`.
        args: numbers, words, lists, and objects: `{"of": NAME}` for a result, `{"dtype": WORD}`.
        kwargs: the same by name.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    name: str
    op: str
    args: list[Any]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Glue:
    """A round around its engines.

    Attributes:
        inputs: names of what it is given, in order.
        steps: in order.
        outputs: the results that it gives.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    inputs: list[str]
    steps: list[Step]
    outputs: list[Any]


def glue_of(module: fx.GraphModule, engines: Sequence[str]) -> tuple[Glue, dict[str, Tensor]]:
    """The steps of a compiled module, and the constants that they read, by name.

    Args:
        module: a graph in which each engine is a submodule.
        engines: their names.

    Raises:
        MissingCapabilityError: a step cannot be written down; names it.
    """
    inputs, steps, outputs = [], [], []
    constants: dict[str, Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            constants[node.name] = value.detach()
        elif node.op == "output":
            outputs = [_written(one) for one in fx.node.map_arg(node.args[0], lambda n: n)]
        elif node.op == "call_module" and node.target in engines:
            steps.append(_step(node, f"{ENGINE}.{engines.index(str(node.target))}"))
        else:
            steps.append(_step(node, _op_name(node)))
    return Glue(inputs, steps, outputs), constants


def _step(node: fx.Node, op: str) -> Step:
    try:
        kwargs = {name: _written(value) for name, value in node.kwargs.items()}
        return Step(node.name, op, [_written(one) for one in node.args], kwargs)
    except TypeError as error:
        raise _unwritten(node, str(error)) from None


def _op_name(node: fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, OpOverload) and target.namespace in _NAMESPACES:
        return str(target)
    name = getattr(target, "__name__", str(target))
    if node.op == "call_function" and name in _OPERATORS and hasattr(operator, name):
        return f"operator.{name}"
    raise _unwritten(node, f"it calls {target}")


def _unwritten(node: fx.Node, why: str) -> MissingCapabilityError:
    return MissingCapabilityError(
        f"the step {node.name} between engines cannot be stored: {why}",
        where="backend tensorrt",
        remedy="Choose another backend.",
    )


def _written(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return {"of": value.name}
    if isinstance(value, (list, tuple)):
        return [_written(one) for one in value]
    if isinstance(value, float) and value - value != 0:
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.device):
        return {"device": value.type}
    for kind, word in _NAMED.items():
        if isinstance(value, kind):
            return {word: str(value).removeprefix("torch.")}
    raise TypeError(f"a value of type {type(value).__name__}")


class Runner:
    """Runs the steps of a round.

    Args:
        glue: the steps.
        engines: what runs each engine: from tensors to a tensor or several.
        constants: by name.
        device: of the tensors.

    Raises:
        ValueError: a step names no op, or a value no dtype, that there is.
    """

    def __init__(
        self,
        glue: Glue,
        engines: Sequence[Callable[..., Any]],
        constants: Mapping[str, Tensor],
        device: torch.device,
    ) -> None:
        self._inputs, self._constants, self._device = glue.inputs, dict(constants), device
        self._outputs = [self._read(one) for one in glue.outputs]
        last: dict[str, int] = {}
        for place, step in enumerate(glue.steps):
            for name in _names_in([step.args, step.kwargs]):
                last[name] = place
        lasting = {*_names_in(glue.outputs), *constants}
        self._steps = [
            (
                step.name,
                _called(step.op, engines),
                [self._read(one) for one in step.args],
                {name: self._read(one) for name, one in step.kwargs.items()},
                [name for name, at in last.items() if at == place and name not in lasting],
            )
            for place, step in enumerate(glue.steps)
        ]

    def __call__(self, *given: Any) -> list[Any]:
        """Run them; what is not needed any more is freed at once."""
        results = dict(self._constants) | dict(zip(self._inputs, given, strict=True))
        for name, call, args, kwargs, spent in self._steps:
            named = {key: _filled(value, results) for key, value in kwargs.items()}
            results[name] = call(*(_filled(one, results) for one in args), **named)
            for old in spent:
                del results[old]
        return [_filled(one, results) for one in self._outputs]

    def _read(self, value: Any) -> Any:
        """A value as it was before it was written."""
        if isinstance(value, list):
            return [self._read(one) for one in value]
        if not isinstance(value, dict):
            return value
        ((kind, word),) = value.items()
        if kind == "of":
            return _Of(str(word))
        if kind == "float":
            return float(word)
        if kind == "device":
            return self._device if word == self._device.type else torch.device(word)
        known = getattr(torch, str(word), None)
        if not isinstance(known, tuple(_NAMED)):
            raise ValueError(f"{word} is no {kind}")
        return known


@dataclass(frozen=True, slots=True)
class _Of:
    """The result of a step."""

    name: str


def _filled(value: Any, results: Mapping[str, Any]) -> Any:
    if isinstance(value, _Of):
        return results[value.name]
    if isinstance(value, list):
        return [_filled(one, results) for one in value]
    return value


def _names_in(value: Any) -> set[str]:
    """Names of the results that a written value reads."""
    if isinstance(value, dict):
        if set(value) == {"of"}:
            return {str(value["of"])}
        return _names_in(list(value.values()))
    return set().union(*map(_names_in, value)) if isinstance(value, list) else set()


def _called(op: str, engines: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    space, _, rest = op.partition(".")
    if space == ENGINE and rest.isdigit() and int(rest) < len(engines):
        return engines[int(rest)]
    if space == "operator" and rest in _OPERATORS:
        return getattr(operator, rest)  # type: ignore[no-any-return]
    packet, _, overload = rest.partition(".")
    if space in _NAMESPACES and overload:
        known = getattr(getattr(torch.ops, space), packet, None)
        overloaded = getattr(known, overload, None)
        if isinstance(overloaded, OpOverload):
            return overloaded
    raise ValueError(f"one calls '{op}', which there is not")
