"""`compute`: scalar arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specplan.ir.errors import RuleError, UsageError
from specplan.ir.formula import evaluate, formula_names, is_condition
from specplan.ir.meaning import Scope
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.value_types import FlagType, NumberType
from specplan.ir.values import Text, Value
from specplan.ir.world import World

AROUND = frozenset({"batch", "context", "emitted", "phase"})
"""Names that a formula may read without an operand."""
_OF_OTHERS = frozenset({"batch", "context"})
"""Those of them that depend on other requests."""


@dataclass(frozen=True, kw_only=True)
class Compute(Op):
    """Scalar arithmetic in a closed grammar (`specplan.ir.formula`); operands by name.

    `batch`, `context`, `emitted` and `phase` need no operand; they mean what they mean in guards.

    %stop = compute "m < 0.4" m=%m
    %k = compute "floor(12*(4 - j)/4)" j=%j
    """

    keyword = "compute"
    positional = ("formula",)
    rest = "operands"
    formula: Text
    operands: tuple[tuple[str, Value], ...] = ()

    def infer(self, context: Context) -> tuple[FlagType | NumberType]:
        """A flag where the formula is a condition, else a number."""
        names = {key for key, _ in self.operands}
        try:
            read = formula_names(self.formula)
        except UsageError as error:
            raise RuleError("formula", str(error)) from error
        if not names <= read or not read - names <= AROUND:
            named = ", ".join(sorted((read - AROUND) ^ (names - read & AROUND)))
            raise RuleError("formula", f"{named} must be both an operand and read by the formula")
        drawn, calibrated, shared = False, False, bool(read & _OF_OTHERS - names)
        for _, name in self.operands:
            operand = context.look(name, "compute")
            if not isinstance(operand, NumberType | FlagType):
                raise RuleError("type", f"compute takes numbers and flags, and %{name} is neither")
            drawn, shared = drawn or operand.drawn, shared or operand.shared
            calibrated = calibrated or operand.calibrated
        kind = FlagType if is_condition(self.formula) else NumberType
        return (kind(drawn, calibrated, shared),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """One formula."""
        return Work(self.keyword)

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The formula's value."""
        operands = {key: float(scope[name]) for key, name in self.operands}
        value = evaluate(self.formula, {**world.around, **operands})
        return (value if isinstance(value, bool) else float(value),)


OP = Compute
