"""What is written for each engine, version and structure, byte for byte.

SPECPLAN_UPDATE_GOLDEN=1 writes the golden files anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specplan.backends.engines.job import Emission
from specplan.backends.engines.registry import all_tables, project
from specplan.backends.engines.table import Table
from specplan.backends.engines.writing import check_documents, render
from specplan.ir.plan import Plan
from tests.backends.engines.examples import FORMS, job, plans, shrinking_head, stopping, with_form

GOLDEN = Path(__file__).parent / "golden"
LOOKUP = "up to 8 tokens after a match of 1 to 3"


def cases() -> dict[str, Plan]:
    """Plans of every structure, those of batch 1 where an engine takes no more, and schedules."""
    alone = {f"{name}_batch_1": plan for name, plan in plans(1).items()}
    schedules = {
        "head_shrinking": shrinking_head(),
        "head_stopping": stopping("eagle3", "chain of 5 by head"),
        "text_stopping": stopping("prompt_lookup", LOOKUP),
    }
    return plans() | alone | schedules


def emissions() -> dict[str, tuple[Table, Emission]]:
    """Every case that an engine expresses; of batch 1 only those that need it."""
    by_case = {}
    for table in all_tables():
        for name, plan in cases().items():
            larger = cases().get(name.removesuffix("_batch_1"))
            if table.refusals(plan) or (
                name.endswith("_batch_1") and larger is not None and not table.refusals(larger)
            ):
                continue
            temperature = 0.8 if plan.assumptions.temperature else 0.0
            devices = 8 if name == "head" and table.shares else 1
            given = job(table, plan, devices, temperature)
            by_case[f"{table.engine}@{table.version}/{name}"] = (table, project(table, given))
        for name, (usual, form) in FORMS.items():
            plan = plans()[usual]
            own = with_form(table, plan, form)
            if not own.refusals(plan):
                emission = project(own, job(own, plan))
                by_case[f"{table.engine}@{table.version}/{name}"] = (own, emission)
    return by_case


EMISSIONS = emissions()


def as_text(emission: Emission) -> str:
    files = {name: text for name, text in render(emission).items() if not name.endswith(".py")}
    parts = [f"### {name}\n{text}" for name, text in files.items()]
    parts.append(f"### command\n{emission.command}\n")
    if emission.forced is not None:
        parts.append(f"### forced\n{emission.forced.command}\n{emission.forced.measure}\n")
    return "\n".join(parts + [f"### note\n{note}\n" for note in emission.notes])


@pytest.mark.parametrize("name", sorted(EMISSIONS))
def test_golden(name: str) -> None:
    table, emission = EMISSIONS[name]
    check_documents(table.engine, emission)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("SPECPLAN_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_text(emission), encoding="utf-8")
    assert as_text(emission) == path.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    known = {f"{name}.txt" for name in EMISSIONS}
    assert {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.txt")} == known
