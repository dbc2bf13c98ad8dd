"""The plan language: value types, ops, plans, their text and JSON forms, and the verifier.

Imports nothing else of the project. Names are loaded on first use, so that importing the package
costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specplan.ir.plan import Plan, Round, Schedule
    from specplan.ir.rules.verify import Diagnostic, check_plan, verify_plan
    from specplan.ir.schedule import select_round
    from specplan.ir.text.json_form import plan_from_json, plan_to_json
    from specplan.ir.text.parser import parse_ops, parse_plan
    from specplan.ir.text.picture import round_graph, to_dot, to_mermaid
    from specplan.ir.text.printer import print_op, print_plan, print_round
    from specplan.ir.types.infer import RoundTypes, Step, infer_round

_HOME = {
    "types.infer": ("RoundTypes", "Step", "infer_round"),
    "text.json_form": ("plan_from_json", "plan_to_json"),
    "text.parser": ("parse_ops", "parse_plan"),
    "text.picture": ("round_graph", "to_dot", "to_mermaid"),
    "plan": ("Plan", "Round", "Schedule"),
    "text.printer": ("print_op", "print_plan", "print_round"),
    "schedule": ("select_round",),
    "rules.verify": ("Diagnostic", "check_plan", "verify_plan"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Diagnostic",
    "Plan",
    "Round",
    "RoundTypes",
    "Schedule",
    "Step",
    "check_plan",
    "infer_round",
    "parse_ops",
    "parse_plan",
    "plan_from_json",
    "plan_to_json",
    "print_op",
    "print_plan",
    "print_round",
    "round_graph",
    "select_round",
    "to_dot",
    "to_mermaid",
    "verify_plan",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'specplan.ir' has no attribute '{name}'")
    return getattr(importlib.import_module(f"specplan.ir.{_MODULE_OF[name]}"), name)
