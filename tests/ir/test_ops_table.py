"""Everything that is known of an op stands in its file, and few modules name its class."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from specplan.ir import ops, parse_ops, print_op
from specplan.ir.op import Op
from specplan.ir.ops import OPS
from specplan.ir.plan import walk

ROOT = Path(__file__).resolve().parents[2]
OWN_FACETS = ("infer", "demand")
"""What every op says itself; the base says that it breaks no rule alone, and holds no memory."""
ROUNDS = {"ir/types/host_ops.py", "ir/types/residency.py", "ir/types/matching.py"}
"""What is known of whole rounds follows values from op to op, as their rules do (`ir/rules`)."""
RECOGNISED = {
    "cost_models/acceptance/evidence/copies.py",  # after which matches a lookup copies
    "cost_models/acceptance/evidence/interleaved.py",  # who drafts each stretch of a chain
    "cost_models/acceptance/evidence/pool_rounds.py",  # which tokens its window and pool verify
    "backends/engines/endings.py",  # which of an engine's early ends a round has
    "backends/engines/structure.py",  # which of an engine's forms a plan has
    "backends/binding.py",  # tokens, layers and children that a checkpoint must have: no sequence
}
"""Shapes of rounds that are priced or projected as a whole, and what a plan asks of checkpoints."""
FOLDERS = ("ir", "cost_models", "passes", "planner", "runtime", "backends", "measure", "src")
MAY_NAME_OPS = (
    "ir/ops/", "ir/rules/", "passes/", "backends/oracle/", "backends/ops/", "backends/eager/",
    "backends/static/",
)  # fmt: skip


def test_an_op_is_known_by_its_place() -> None:
    files = {path.stem for path in (ROOT / "ir" / "ops").glob("*.py")} - {"__init__"}
    assert set(OPS) == files
    for keyword, op in OPS.items():
        assert op.keyword == keyword and inspect.getfile(op).endswith(f"/{keyword}.py")


@pytest.mark.parametrize("keyword", OPS)
def test_no_cell_of_the_table_is_empty(keyword: str) -> None:
    op = OPS[keyword]
    for facet in OWN_FACETS:
        assert facet in vars(op), f"{keyword} lacks {facet}"
    assert "run" in vars(op) or "run_all" in vars(op), f"{keyword} lacks its meaning"
    for facet in ("findings", "bytes", "misplaced"):
        assert callable(getattr(op, facet))
    for field in ("positional", "writes"):
        assert set(getattr(op, field)) <= set(op.__dataclass_fields__), field
    for pairs in (op.touches, op.entries):
        assert {field for field, _ in pairs} <= set(op.__dataclass_fields__)


@pytest.mark.parametrize("keyword", OPS)
def test_its_docstring_shows_it_in_two_lines(keyword: str) -> None:
    lines = inspect.getdoc(OPS[keyword]).splitlines()[-2:]  # type: ignore[union-attr]
    closed = [f"{line}\n}}" if line.endswith("{") else line for line in lines]
    read = [op for line in closed if not line.startswith("state") for op in parse_ops(line)]
    assert any(op.keyword == keyword for op in read)
    assert [print_op(op).split("\n")[0] for op in read] == [
        line for line in lines if not line.startswith("state")
    ]
    assert list(walk(tuple(read))) == read


def test_few_modules_name_an_op_class() -> None:
    classes = {name for name in ops.__all__ if name not in ("OPS", "Op", "Region")}
    naming = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            place = path.relative_to(ROOT).as_posix()
            if not place.startswith(MAY_NAME_OPS) and classes & set(_imported(path)):
                naming.add(place)
    assert naming == ROUNDS | RECOGNISED


def _imported(path: Path) -> Iterator[str]:
    """Names that a module takes from the package of ops."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specplan.ir.ops"):
            yield from (alias.name for alias in node.names)


def test_an_op_without_facets_cannot_be_used() -> None:
    bare = Op()
    for facet in OWN_FACETS:
        with pytest.raises(NotImplementedError):
            getattr(bare, facet)(*[None] * (2 if facet == "demand" else 1))
