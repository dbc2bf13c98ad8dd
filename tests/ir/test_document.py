"""The page on the language names every op, attribute, entry and rule, and its example holds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from specplan.ir import parse_plan, print_plan, verify_plan
from specplan.ir.ops import OPS
from specplan.ir.plan import Assumptions, CacheState, Model, SourceState, Threads, TrackState
from specplan.ir.rules.verify import RULES
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.types.bounds import LARGEST_TREE, MOST_STEPS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "plan_language.md").read_text()
OPS_SECTION = PAGE.partition("\n## Ops\n")[2].partition("\n## ")[0]
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| `([^`]+)` \|.*$", OPS_SECTION, re.MULTILINE)}


def test_the_example_is_well_formed() -> None:
    (example,) = re.findall(r"```plan\n(.*?)```", PAGE, re.DOTALL)
    plan = parse_plan(example)
    assert verify_plan(plan) == ()
    assert parse_plan(print_plan(plan)) == plan
    bare = [re.sub(r"\s*#.*", "", line) for line in example.splitlines()]
    assert "\n".join(bare) + "\n" == print_plan(plan)


@pytest.mark.parametrize("keyword", OPS)
def test_every_op_and_attribute_has_its_place(keyword: str) -> None:
    op = OPS[keyword]
    attributes = {field.name for field in dataclasses.fields(op)}
    for name in attributes - {"results", "body", "carried", "operands", *op.positional}:
        assert f"{name}=" in ROWS[keyword], name


def test_every_attribute_of_a_statement_is_named() -> None:
    for cls in (Model, Assumptions, CacheState, TrackState, SourceState, Threads):
        for field in dataclasses.fields(cls):
            if field.name not in ("name", "model", "kind"):
                assert f"`{field.name}" in PAGE or f"{field.name}=" in PAGE, field.name


def test_rules_are_those_of_the_verifier_in_their_order() -> None:
    section = PAGE.partition("\n## Rules\n")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == RULES
    assert str(LARGEST_TREE) in section and str(MOST_STEPS) in section


def test_every_entry_is_named() -> None:
    section = PAGE.partition("\n## Entries\n")[2].partition("\n## ")[0]
    for table in ("rule", "law", "measure", "source", "policy", "promise", "threads"):
        for name in BUILTIN.names(table):  # type: ignore[arg-type]
            declared = BUILTIN.find(table, name)  # type: ignore[arg-type]
            assert declared is not None
            keys = ", ".join(f"{key}=" for key, _ in declared.parameters)
            assert f"`{name}({keys})`" in section if keys else f"`{name}`" in section
