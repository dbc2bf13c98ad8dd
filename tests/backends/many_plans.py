"""Plans of published systems and generated plans, and which of them the interpreter runs."""

from __future__ import annotations

import re
from pathlib import Path

from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.ir.capabilities import refusals
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from tests.ir.generated.plans import generated_plan
from tests.matrix import sized

PLANS = Path(__file__).resolve().parents[1] / "ir" / "plans"
LARGE = re.compile(r"\b(103|128255|32001|450|1234|338)\b|(?<=token=)24|(?<=tokens=\[)24")
"""Tokens beyond the vocabulary of small models."""


def small(path: Path) -> Plan:
    """A plan whose tokens are of a small vocabulary."""
    return parse_plan(LARGE.sub("7", path.read_text(encoding="utf-8")))


def runs(plan: Plan) -> bool:
    """Whether the interpreter takes the plan."""
    return not refusals(plan, CAPABILITIES)


LEDGER = [path for path in sorted((PLANS / "ledger").glob("*.plan")) if runs(small(path))]
"""Plans of systems that the interpreter runs."""
GENERATED = [number for number in range(sized(50, 1000)) if runs(generated_plan(number))]
"""Generated plans that the interpreter runs."""
