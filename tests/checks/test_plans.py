"""Recorded problems planned again: here, by another process, and after something changed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from specplan.checks.plans import ANSWER, PROBLEM, check_plans, difference, records, update
from specplan.checks.recording import record
from specplan.checks.side import Side
from specplan.checks.worker import answer_of
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.errors import (
    MissingCapabilityError,
    NothingToCompareError,
    UndecidedError,
    UsageError,
)
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import gather_facts
from specplan.planner.problem.loading import load_problem, problem_from_dict
from specplan.problems import portable
from tests.planner.checkpoints import write_checkpoint, write_prompts

REPOSITORY = Path(__file__).resolve().parents[2]
OWN = REPOSITORY / "examples/ci/plans"


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints with weights, and an acceptance profile that belongs to their digests."""
    folder = tmp_path_factory.mktemp("problem")
    for name, layers in (("target", 12), ("draft", 1)):
        write_checkpoint(folder / name, num_hidden_layers=layers, dtype="float32")
    write_prompts(folder / "prompts.jsonl")
    data: dict[str, Any] = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target"},
            "drafts": [{"name": "draft", "path": "draft"}],
        },
        "sources": [],
        "methods": ["draft_model"],
        "device": "h200",
        "workload": {"batch_sizes": [1, 4], "prompt_tokens": 40, "output_tokens": 32},
        "objective": "throughput",
        "limits": {"ttft": 1.0},
    }
    path = folder / "problem.yaml"
    path.write_text(yaml.safe_dump(data))
    checked = load_problem(path)
    key = acceptance_key(checked, gather_facts(checked).shapes, Model("draft"))
    assert len(key.target_digest) == len(key.drafter_digest) == 64
    profile = AcceptanceProfile.from_hazards([[0.95, 0.02], [0.9, 0.02]], key=key, trials=900)
    profile.save(folder / "draft.json")
    data["acceptance"] = {"draft": "draft.json"}
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture(scope="module")
def recorded(problem: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one record, "pair"."""
    folder = tmp_path_factory.mktemp("records")
    record(problem, folder / "pair")
    return folder


def test_a_record_needs_no_weights_and_is_planned_alike(problem: Path, recorded: Path) -> None:
    files = {path.name for path in (recorded / "pair").rglob("*") if path.is_file()}
    assert files == {PROBLEM, ANSWER, "config.json", "draft.json"}
    copied = yaml.safe_load((recorded / "pair" / PROBLEM).read_text())
    assert copied["limits"] == {"ttft": 1.0} and copied["objective"] == "throughput"
    assert not difference(answer_of(str(problem)), answer_of(str(recorded / "pair" / PROBLEM)))
    checked = check_plans(recorded)
    assert [(item.name, item.status) for item in checked.items] == [("pair", "ok")]
    assert {metric.unit for metric in checked.items[0].metrics} == {"s/token"}
    assert records(recorded / "pair") == [recorded / "pair"]


def test_a_record_goes_without_the_corpus(problem: Path, tmp_path: Path) -> None:
    """What a datastore's file says of it is enough to plan; where it lay is not compared."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "datastore.json").write_text("{}")
    data = yaml.safe_load(problem.read_text())
    data |= {"sources": ["datastore"], "datastore": str(corpus)}
    path = problem.with_name("with_corpus.yaml")
    path.write_text(yaml.safe_dump(data))
    record(path, tmp_path / "records" / "pair")
    moved = problem_from_dict(portable(load_problem(path), tmp_path), tmp_path)
    assert (
        moved.datastore == corpus and not Path(portable(moved, tmp_path)["datastore"]).is_absolute()
    )
    shutil.rmtree(corpus)
    assert [item.status for item in check_plans(tmp_path / "records").items] == ["ok"]


def test_what_changed_is_reported_and_can_be_recorded(recorded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(recorded, tmp_path / "records")
    path = folder / "pair/acceptance/draft.json"
    profile = json.loads(path.read_text())
    profile["evidence"]["rows"] = [[0.05, 0.02], [0.05, 0.02]]
    path.write_text(json.dumps(profile))
    (item,) = check_plans(folder).items
    assert item.status == "regressed" and item.summary.startswith("another plan and ")
    assert "+++ head" in item.details and "\n+best of draft_model: " in item.details
    (moved,) = [
        line
        for line in item.details.splitlines()
        if line.startswith("!chosen, batch 1, prompt 40, seconds per token")
    ]
    old, new = (float(word) for word in moved.split(": ")[1].split(" (")[0].split(" -> "))
    assert new > 1.1 * old and f"({new / old - 1:+.2%})"[:4] in moved
    assert check_plans(folder, changes_allowed=True).items[0].status == "noted"
    assert update(folder) == [folder / "pair"]
    assert check_plans(folder).items[0].status == "ok"


def test_a_kind_of_plan_that_is_new_is_no_regression(recorded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(recorded, tmp_path / "records")
    document = json.loads((folder / "pair" / ANSWER).read_text())
    del document["answer"]["prices"]["draft_model"]
    (folder / "pair" / ANSWER).write_text(json.dumps(document))
    (item,) = check_plans(folder).items
    assert item.status == "noted" and item.details.startswith("+best of draft_model: ")


def test_a_price_counts_from_the_threshold_on() -> None:
    def answer(price: float) -> dict[str, Any]:
        loads = {"batch 1, prompt 9": {"seconds per token": price, "bytes": 0.0}}
        return {"plan": "plan x\n", "prices": {"chosen": {"words": "x", "loads": loads}}}

    assert difference(answer(1.0), answer(1.0009)) == ""
    line = difference(answer(1.0), answer(0.99))
    assert line == "!chosen, batch 1, prompt 9, seconds per token: 1 -> 0.99 (-1.00%)"
    assert difference(answer(1.0), answer(0.99), moved=0.02) == ""
    less = answer(1.0)
    less["prices"]["chosen"]["loads"] = {}
    assert "no price any more" in difference(answer(1.0), less)


def test_another_environment_plans_the_same_problems(recorded: Path, tmp_path: Path) -> None:
    """This one twice: the answers cross a process, and stored ones are not read."""
    folder = shutil.copytree(recorded, tmp_path / "records")
    (folder / "pair" / ANSWER).unlink()
    assert check_plans(folder).items[0].status == "noted"
    broken = shutil.copytree(folder / "pair", folder / "worse")
    (broken / "target/config.json").unlink()
    checked = check_plans(folder, base_python=Path(sys.executable))
    assert [item.status for item in checked.items] == ["ok", "regressed"]
    assert "config.json" in checked.items[1].summary


def test_what_is_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be started"):
        Side(tmp_path / "python")
    with pytest.raises(UsageError, match="without an answer"):
        Side(Path("/bin/true"))
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys._base_executable}" -S "$@"\n')  # type: ignore[attr-defined]
    bare.chmod(0o755)
    with pytest.raises(MissingCapabilityError, match="no specplan"):
        Side(bare)


def test_what_is_no_record_is_refused(problem: Path, tmp_path: Path) -> None:
    with pytest.raises(NothingToCompareError, match="no recorded problem"):
        check_plans(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        record(problem, tmp_path / "other")
    undecided = yaml.safe_load(problem.read_text()) | {"acceptance": {}}
    for role in (undecided["models"]["target"], *undecided["models"]["drafts"]):
        role["path"] = str(problem.parent / role["path"])
    with pytest.raises(UndecidedError, match="no acceptance is known for draft"):
        record(undecided, tmp_path / "undecided")
    assert not (tmp_path / "undecided").exists()
    folder = shutil.copytree(OWN / "tree-7b-a100", tmp_path / "tree")
    (folder / ANSWER).write_text('{"schema_version": 99}')
    with pytest.raises(UsageError, match="--update"):
        check_plans(folder)


def test_our_own_records_hold() -> None:
    """A deliberate change of a price: `specplan check plans examples/ci/plans --update`."""
    checked = check_plans(OWN)
    assert {item.name: item.details for item in checked.items if item.status != "ok"} == {}
    assert len(checked.items) >= 4


def test_measured_devices_and_acceptance_are_recorded_as_measured(tmp_path: Path) -> None:
    """Tables know models by digests, and these are others without the weights."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.measure.problems import write_problem

    path = write_problem(tmp_path, prompts=4, output_tokens=2)
    data = json.loads(path.read_text()) | {"methods": ["prompt_lookup"]}
    data["models"]["drafts"] = []
    path.write_text(json.dumps(data))
    answer = record(path, tmp_path / "records/measured")
    assert set(answer["prices"]) >= {"autoregressive", "chosen", "prompt_lookup"}
    files = {file.name for file in (tmp_path / "records/measured").rglob("*") if file.is_file()}
    assert files == {PROBLEM, ANSWER, "config.json", "device.json", "text.json"}
    shutil.rmtree(tmp_path / "target")
    assert [item.status for item in check_plans(tmp_path / "records").items] == ["ok"]
