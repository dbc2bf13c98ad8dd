"""Bundles whose problem is not one, with sums that hold: one clear error from all that read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import specplan
from specplan.backends.bundle import write_bundle
from specplan.bundles.compiling import compile_bundle
from specplan.bundles.writing import open_bundle
from specplan.checks.running import opened
from specplan.ir.errors import UsageError
from tests.backends.mutations import sum_anew
from tests.ir.plans_on_disk import plan_of
from tests.planner.checkpoints import write_checkpoint

PROBLEM: dict[str, Any] = {
    "schema_version": 1,
    "models": {
        "target": {"path": "../target"},
        "drafts": [{"name": "draft", "path": "../draft"}],
    },
    "workload": {"batch_sizes": [1], "prompt_tokens": 8, "output_tokens": 8},
}
WORKLOAD: dict[str, Any] = PROBLEM["workload"]
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "lacks a key": ({"workload": None}, "workload: .*this key is required"),
    "lacks a key within": (
        {"workload": {"prompt_tokens": 8}},
        r"workload\.batch_sizes: .*this key is required",
    ),
    "a number for a mapping": ({"workload": 5}, "workload: .*must be a mapping"),
    "a text for a number": (
        {"workload": WORKLOAD | {"temperature": "hot"}},
        r"workload\.temperature: .*must be a number",
    ),
    "nothing for a number": (
        {"workload": WORKLOAD | {"top_p": []}},
        r"workload\.top_p: .*must be a number",
    ),
    "lists for limits": ({"limits": []}, "limits: .*must be a mapping"),
    "an unknown key": ({"wrokload": {}}, "wrokload: .*unknown key"),
    "another version": ({"schema_version": 99}, "schema_version: .*version 99"),
    "no version": ({"schema_version": None}, "schema_version: .*this key is required"),
}
READERS: dict[str, Callable[[Path], object]] = {
    "Decoder": specplan.Decoder,
    "bench": specplan.bench,
    "compile": compile_bundle,
    "emit": lambda folder: specplan.emit(folder, "vllm", out=folder.parent / "out"),
    "check": opened,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("damaged")
    for name in ("target", "draft"):
        write_checkpoint(home / name)
    return write_bundle(
        home / "bundle",
        plan=plan_of("draft_chain"),
        problem=PROBLEM,
        report={},
        models={name: (home / name, "auto") for name in ("target", "draft")},
        backend="eager",
        versions={},
    ).folder


def write_problem(folder: Path, **changes: Any) -> None:
    """The bundle's problem, without what is None, and the manifest with its sum."""
    problem = {key: value for key, value in (PROBLEM | changes).items() if value is not None}
    (folder / "problem.json").write_text(json.dumps(problem))
    sum_anew(folder, folder / "problem.json")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_problem_is_named_with_its_file_key_and_remedy(
    folder: Path, kind: str, reader: str
) -> None:
    changes, message = DAMAGED[kind]
    write_problem(folder, **changes)
    with pytest.raises(UsageError, match=message) as caught:
        READERS[reader](folder)
    text = str(caught.value)
    assert str(folder / "problem.json") in text and "run `specplan optimize` again" in text
    assert "bundle's problem is damaged" in text and "\n" not in text


def test_what_a_problem_leaves_out_is_as_by_default(folder: Path) -> None:
    write_problem(folder)
    bundle = open_bundle(folder)
    assert bundle.problem["workload"]["temperature"] == 0.0
    assert bundle.problem["limits"]["ttft"] is None
    assert open_bundle(bundle) == bundle
