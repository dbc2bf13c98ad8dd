"""`compute`: scalar arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from specplan.ir.context import Context
from specplan.ir.errors import UsageError
from specplan.ir.formula import formula_names, is_condition
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.rule_error import RuleError
from specplan.ir.types import FlagType, NumberType
from specplan.ir.values import Text, Value


@dataclass(frozen=True, kw_only=True)
class Compute(Op):
    """Scalar arithmetic in a closed grammar (`specplan.ir.formula`); operands by name.

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
        if read != names:
            named = ", ".join(sorted(read ^ names))
            raise RuleError("formula", f"operands are what the formula reads; {named} is not both")
        drawn = False
        for _, name in self.operands:
            operand = context.look(name, "compute")
            if not isinstance(operand, NumberType | FlagType):
                raise RuleError("type", f"compute %{name} is not a number")
            drawn = drawn or operand.drawn
        return (FlagType(drawn) if is_condition(self.formula) else NumberType(drawn),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """One formula."""
        return Work(self.keyword)


OP = Compute
