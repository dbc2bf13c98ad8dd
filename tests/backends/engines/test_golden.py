"""What is written for each engine, version and structure, byte for byte.

SPECPLAN_UPDATE_GOLDEN=1 writes the golden files anew.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from specplan.backends.engines.job import Emission
from specplan.backends.engines.registry import all_tables, project
from specplan.backends.engines.writing import check_documents, render
from specplan.ir.plan import Plan
from tests.backends.engines.examples import FORMS, job, plans, shrinking_head, stopping, with_form

GOLDEN = Path(__file__).parent / "golden"
TABLES = {f"{table.engine}@{table.version}": table for table in all_tables()}
LOOKUP = "up to 8 tokens after a match of 1 to 8"


@cache
def cases() -> dict[str, Plan]:
    """Plans of every structure, those of batch 1 where an engine takes no more, and schedules."""
    alone = {f"{name}_batch_1": plan for name, plan in plans(1).items()}
    schedules = {
        "head_shrinking": shrinking_head(),
        "head_stopping": stopping("eagle3", "chain of 5 by head"),
        "text_stopping": stopping("prompt_lookup", LOOKUP),
    }
    return plans() | alone | schedules


@cache
def emissions(engine: str) -> dict[Path, Emission]:
    """Every case that an engine expresses, by its file; of batch 1 only those that need it."""
    table, by_case = TABLES[engine], {}
    for name, plan in cases().items():
        larger = cases().get(name.removesuffix("_batch_1"))
        if table.refusals(plan) or (
            name.endswith("_batch_1") and larger is not None and not table.refusals(larger)
        ):
            continue
        temperature = 0.8 if plan.assumptions.temperature else 0.0
        devices = 8 if name == "head" and table.shares else 1
        by_case[name] = project(table, job(table, plan, devices, temperature))
    for name, (usual, form) in FORMS.items():
        own = with_form(table, plans()[usual], form)
        if not own.refusals(plans()[usual]):
            by_case[name] = project(own, job(own, plans()[usual]))
    return {GOLDEN / engine / f"{name}.txt": emission for name, emission in by_case.items()}


def as_text(emission: Emission) -> str:
    files = {name: text for name, text in render(emission).items() if not name.endswith(".py")}
    parts = [f"### {name}\n{text}" for name, text in files.items()]
    parts.append(f"### command\n{emission.command}\n")
    if emission.forced is not None:
        parts.append(f"### forced\n{emission.forced.command}\n{emission.forced.measure}\n")
    return "\n".join(parts + [f"### note\n{note}\n" for note in emission.notes])


@pytest.mark.parametrize("engine", sorted(TABLES))
def test_golden(engine: str) -> None:
    for path, emission in emissions(engine).items():
        check_documents(TABLES[engine].engine, emission)
        if os.environ.get("SPECPLAN_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(as_text(emission), encoding="utf-8")
        assert as_text(emission) == path.read_text(encoding="utf-8"), path.name


def test_no_golden_file_is_left_over() -> None:
    assert set(GOLDEN.rglob("*.txt")) == {path for engine in TABLES for path in emissions(engine)}
