"""Lowerings of the ops: one file per op, pure functions of tensors.

`specplan.backends.ops.<op>` has one function, named as the op. `torch.export` can trace it: it
reads no number out of a tensor, has no loop over requests, and its shapes follow from the shapes of
its operands and from static types.

Its parameters declare what it needs, so that whoever runs ops need not know the single op. `op` is
the op. The other positional parameters are fields of the op and receive what these operands hold
(`specplan.backends.ops.tensors.values`). Parameters after the `*` are asked of the `Runner`.
Caches, texts and sources stay with the backend: `forward` and `commit` compute slots and masks,
and `lookup` starts from what a source returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol

from specplan.ir.op import Op
from specplan.ir.ops import OPS
from specplan.ir.types.value_types import Type
from specplan.ir.values import Value

if TYPE_CHECKING:
    from torch import Tensor

    from specplan.backends.ops.accept import Form
    from specplan.backends.ops.tensors.values import Tree
    from specplan.runtime.sampling import SamplingSettings


class Runner(Protocol):
    """What lowerings ask of whoever runs ops, besides operands, by the name of the parameter."""

    def kind(self, op: Op) -> Type:
        """The static type of the op's result."""
        ...

    def reads(self, op: Op) -> Mapping[Value, Type]:
        """The static types of the op's operands."""
        ...

    def root(self, op: Op) -> Tree:
        """The tree without drafted nodes, of the texts as they are now."""
        ...

    def state(self, op: Any) -> Tree | Tensor:
        """The content of the value state of `load` or `store`."""
        ...

    def keeps_probs(self, op: Any) -> bool:
        """Whether that state keeps the probabilities that nodes were drawn from."""
        ...

    def settings(self, op: Op) -> SamplingSettings:
        """Sampling settings of the requests."""
        ...

    def remembers(self, op: Op) -> bool:
        """Whether a later op reads the logits that trees are grown from, see `Tree.logits`."""
        ...

    def most(self, op: Op) -> int | None:
        """Most nodes that the round judges; None: as many as there are."""
        ...

    def form(self, op: Op) -> Form:
        """Which form of a rule runs."""
        ...


@dataclass(frozen=True)
class Lowering:
    """A lowering, and what it is called with.

    Attributes:
        function: of the op's file.
        operands: fields of the op whose values it takes, in order.
        asked: what it asks of a `Runner`.
    """

    function: Callable[..., Any]
    operands: tuple[str, ...]
    asked: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Lowering:
        """Read a function's parameters."""
        behind = [p.name for p in signature(function).parameters.values() if _asked(p)]
        names = [name for name in signature(function).parameters if name not in behind]
        return cls(function, tuple(name for name in names if name != "op"), tuple(behind))

    def __call__(self, op: Op, scope: Mapping[Value, Any], runner: Runner) -> Any:
        """What the op gives.

        Args:
            op: of the lowering's keyword.
            scope: what values hold.
            runner: who runs it.
        """
        given = [operand_of(getattr(op, name), scope) for name in self.operands]
        asked = {name: getattr(runner, name)(op) for name in self.asked}
        return self.function(op, *given, **asked)


def operand_of(field: object, scope: Mapping[Value, Any]) -> Any:
    """The values named in a field of an op; anything else as it is."""
    if isinstance(field, Value):
        return scope[field]
    if isinstance(field, tuple):
        return [operand_of(one, scope) for one in field]
    return field


def _asked(parameter: Parameter) -> bool:
    return parameter.kind is Parameter.KEYWORD_ONLY


@cache
def lowerings() -> dict[str, Lowering]:
    """By the keyword of the op, the function of the file of that name."""
    names = (module.name for module in iter_modules(__path__) if module.name in OPS)
    return {name: Lowering.of(getattr(import_module(f"{__name__}.{name}"), name)) for name in names}
