"""Bundles whose report is not one, with sums that hold: one clear error from all that read it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import specplan
from specplan.backends.bundle import load_bundle, write_bundle
from specplan.bundles.compiling import buckets_of
from specplan.bundles.contest import chosen_name, contestants
from specplan.cli.explain import explain
from specplan.cli.report import report
from specplan.emitting.projecting import _choice_of_bundle
from specplan.ir.errors import SpecplanError, UsageError
from specplan.planner.explain.data import explain as explained
from specplan.planner.search.search import search
from tests.backends.mutations import edited_json, sum_anew
from tests.cli.test_damaged_bundles import PROBLEM
from tests.planner.checkpoints import write_checkpoint
from tests.planner.example_facts import example_facts, workload

READERS: dict[str, Callable[[Path], object]] = {
    "explain": lambda folder: explain(path=folder),
    "report": lambda folder: report(path=folder, out=folder.parent / "report.md"),
    "the Python API": specplan.explain,
    "compile": lambda folder: buckets_of(load_bundle(folder)),
    "bench": lambda folder: contestants(load_bundle(folder), 1, kinds=True),
    "check": lambda folder: chosen_name(load_bundle(folder)),
    "emit": lambda folder: _choice_of_bundle(load_bundle(folder)),
}
SELDOM = ("compile", "bench", "check", "emit")
"""They read few of its values."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a real report, cut to what is read of it: two candidates of hundreds."""
    home = tmp_path_factory.mktemp("reports")
    for name in ("target", "draft"):
        write_checkpoint(home / name)
    result = search(example_facts(home / "facts", workload=workload(batch_sizes=[1])))
    assert result.chosen.plan is not None
    document: dict[str, Any] = result.as_dict() | {"explanation": explained(result)}
    document["candidates"] = [
        document["candidates"][document[name]] for name in ("chosen", "plain")
    ]
    document |= {"chosen": 0, "plain": 1}
    document["explanation"]["runners_up"] = []
    return write_bundle(
        home / "bundle",
        plan=result.chosen.plan,
        problem=PROBLEM,
        report=document,
        models={name: (home / name, "auto") for name in ("target", "draft")},
        backend="eager",
        versions={},
    ).folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """The bundle beside links to its models."""
    for name in ("target", "draft"):
        (tmp_path / name).symlink_to(folder.parent / name)
    return Path(shutil.copytree(folder, tmp_path / "bundle"))


@pytest.mark.parametrize("reader", READERS)
def test_a_report_that_lacks_everything_is_named(copied: Path, reader: str) -> None:
    path = copied / "report.json"
    path.write_text(json.dumps({"explanation": None}))
    sum_anew(copied, path)
    with pytest.raises(UsageError, match="the bundle's report cannot be read") as caught:
        READERS[reader](copied)
    assert str(path) in str(caught.value) and "run `specplan optimize` again" in str(caught.value)


@pytest.mark.parametrize(
    "damage", [{"batch": "x"}, *({"seconds_per_round": {"mean": bad}} for bad in ("x", 0))]
)
def test_loads_that_are_no_numbers_are_named(copied: Path, damage: dict[str, Any]) -> None:
    path = copied / "report.json"
    document = json.loads(path.read_text())
    document["explanation"]["chosen"]["by_batch"][0] |= damage
    path.write_text(json.dumps(document))
    sum_anew(copied, path)
    with pytest.raises(UsageError, match="the bundle's report cannot be read"):
        READERS["compile"](copied)


@pytest.mark.parametrize("reader", READERS)
def test_any_damage_is_borne_or_named(copied: Path, reader: str) -> None:
    path, draws = copied / "report.json", random.Random(reader)
    raw, named = path.read_bytes(), 0
    READERS[reader](copied)
    for _ in range(40):
        path.write_bytes(edited_json(raw, draws))
        sum_anew(copied, path)
        try:
            READERS[reader](copied)
        except SpecplanError as error:
            assert "\n" not in str(error)
            named += "report" in str(error) or "plan" in str(error)
    assert named or reader in SELDOM
