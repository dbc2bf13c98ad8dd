"""Lowerings of the ops: one file per op, pure functions of tensors.

`specplan.backends.ops.<op>` has one function, named as the op. `torch.export` can trace it: it
reads no number out of a tensor, has no loop over requests, and its shapes follow from the shapes of
its operands and from static types.

Its parameters declare what it needs, so that whoever runs ops need not know the single op. `op` is
the op. The other positional parameters are fields of the op and receive what these operands hold
(`specplan.backends.ops.tensors.values`). Parameters after the `*` are asked of
whoever runs ops (`specplan.backends.eager.op_runner`).
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
from typing import TYPE_CHECKING, Any

from specplan.ir.op import Op
from specplan.ir.ops import OPS
from specplan.ir.values import Value

if TYPE_CHECKING:
    from specplan.backends.eager.op_runner import OpRunner


@dataclass(frozen=True)
class Lowering:
    """A lowering, and what it is called with.

    Attributes:
        function: of the op's file.
        operands: fields of the op whose values it takes, in order.
        asked: what it asks of whoever runs it.
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

    def __call__(self, op: Op, scope: Mapping[Value, Any], runner: OpRunner) -> Any:
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
