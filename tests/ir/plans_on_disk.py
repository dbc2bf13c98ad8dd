"""The plans that the language must be able to say."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from specplan.ir import Plan, parse_plan

FOLDER = Path(__file__).resolve().parent / "plans"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.plan")))


def text_of(name: str) -> str:
    """The text of a plan."""
    return (FOLDER / f"{name}.plan").read_text(encoding="utf-8")


@cache
def plan_of(name: str) -> Plan:
    """The plan itself."""
    return parse_plan(text_of(name))
