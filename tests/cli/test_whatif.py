"""`specplan whatif`, and an undecided answer on the command line: in one process, without torch."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from specplan.ir.errors import UndecidedError, UsageError
from specplan.sweeping import sweep
from tests.cli.test_program import no_torch, specplan, specplan_here
from tests.planner.checkpoints import write_checkpoint

__all__ = ["no_torch"]


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whatif")
    for name, seed in (("target", 0), ("draft", 1)):
        write_checkpoint(folder / name, seed=seed)
    document = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target", "dtype": "float32"},
            "drafts": [{"name": "draft", "path": "draft", "dtype": "float32"}],
        },
        "device": "cpu-generic",
        "workload": {"batch_sizes": [1, 2], "prompt_tokens": 12, "output_tokens": 16},
    }
    path = folder / "problem.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_an_undecided_answer_has_its_exit_code_and_is_passed_on_by_nothing(
    problem: Path, tmp_path: Path, no_torch: str
) -> None:
    done = specplan("optimize", str(problem), PYTHONPATH=no_torch)
    assert done.returncode == UndecidedError.exit_code == 6, done.stderr
    assert "\nNo decision: no acceptance is known for draft" in done.stdout
    assert "Chosen" not in done.stdout and f"specplan whatif {problem}" in done.stdout
    done = specplan_here("optimize", str(problem), "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["verdict"], answer["plan"]) == (6, "undecided", None)
    assert {row["acceptance"] for row in answer["what_if"]} == {0.5, 0.6, 0.7, 0.8, 0.9}
    for command in (
        ("optimize", str(problem), "--out", str(tmp_path / "bundle")),
        ("emit", str(problem), "--engine", "vllm", "--out", str(tmp_path / "vllm")),
    ):
        done = specplan_here(*command)
        assert done.returncode == 6 and "no acceptance is known for draft" in done.stderr
    assert not {path.name for path in tmp_path.iterdir()} - {"sitecustomize.py", "__pycache__"}
    assert specplan_here("explain", str(problem)).returncode == 6
    written = tmp_path / "report.md"
    done = specplan_here("report", str(problem), "--out", str(written))
    assert done.returncode == 6 and done.stdout == f"Report: {written}\n"
    text = written.read_text()
    assert text.startswith("# No decision: no acceptance is known for draft")
    assert f"specplan whatif {problem}" in text and "| draft | 2 |" in text


def test_an_assumption_decides_and_is_marked_everywhere(problem: Path, tmp_path: Path) -> None:
    flag = ("--acceptance", "draft=0.9")
    done = specplan_here("optimize", str(problem), *flag)
    assert done.returncode == 0
    assert 'Assumed, not measured: the acceptance of "draft"' in done.stdout
    answer = json.loads(specplan_here("optimize", str(problem), *flag, "--json").stdout)
    assert answer["verdict"] == "decided" and "0.9" in answer["explanation"]["assumed"]["draft"]
    bundle = tmp_path / "bundle"
    assert specplan_here("optimize", str(problem), *flag, "--out", str(bundle)).returncode == 0
    report = json.loads((bundle / "report.json").read_text())
    assert report["explanation"]["assumed"].keys() == {"draft"}
    page = tmp_path / "report.md"
    assert specplan_here("report", str(bundle), "--out", str(page)).returncode == 0
    assert "Assumed, not measured" in page.read_text()


def test_a_sweep_as_json_table_csv_and_picture(problem: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = ("whatif", str(problem), "--acceptance", "0.5,0.7,0.9", "--batch", "1,16")
    rows = json.loads(specplan_here(*command, "--json").stdout)["rows"]
    assert [(row["drafter"], row["batch"], row["acceptance"]) for row in rows] == [
        ("draft", batch, acceptance) for batch in (1, 16) for acceptance in (0.5, 0.7, 0.9)
    ]
    assert all(row.keys() >= {"draft_tokens", "gain", "pays_from"} for row in rows)
    table, picture = tmp_path / "new/rows.csv", tmp_path / "other/gain.svg"
    done = specplan_here(
        *command, "--set", "workload.prompt_tokens=12,64", "--csv", str(table),
        "--plot", str(picture),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with table.open() as file:
        read = list(csv.DictReader(file))
    assert len(read) == 2 * len(rows)
    assert {row["workload.prompt_tokens"] for row in read} == {"12", "64"}
    assert "<svg" in picture.read_text()
    assert "pays from" in done.stdout and "workload.prompt_tokens" in done.stdout


def test_a_range_with_a_step_and_several_devices(problem: Path) -> None:
    done = specplan_here(
        "whatif", str(problem), "--acceptance", "0.3..0.5:0.1", "--device", "cpu-generic,h200",
        "--batch", "1", "--json",
    )  # fmt: skip
    rows = json.loads(done.stdout)["rows"]
    assert [row["acceptance"] for row in rows if row["device"] == "h200"] == [0.3, 0.4, 0.5]
    assert {row["device"] for row in rows} == {"cpu-generic", "h200"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--acceptance", "1.5"), "probabilities from 0 to 1"),
        (("--acceptance", "0.9..0.3"), "probabilities from 0 to 1"),
        (("--set", "workload.batch_sizes"), "not KEY=VALUES"),
        (("--device", "nowhere"), "unknown device"),
        (("--plot", "gain.nothing"), "format of gain.nothing"),
    ],
)
def test_wrong_flags(problem: Path, flags: tuple[str, ...], message: str) -> None:
    pytest.importorskip("matplotlib")
    done = specplan_here("whatif", str(problem), *flags)
    assert done.returncode == 2 and message in done.stderr


def test_a_problem_in_which_nothing_drafts(problem: Path) -> None:
    document = yaml.safe_load(problem.read_text())
    document["models"] = {"target": {**document["models"]["target"]}}
    document["models"]["target"]["path"] = str(problem.parent / "target")
    with pytest.raises(UsageError, match="nothing drafts"):
        sweep([({}, document)])


def test_priors_are_named_with_their_origin_wherever_numbers_rest_on_them(problem: Path) -> None:
    done = specplan_here("whatif", str(problem), "--set", "acceptance=prior")
    assert done.returncode == 0, done.stderr
    for drafter, kind in (("draft", "a smaller model"), ("text", "prompt lookup")):
        (line,) = [text for text in done.stdout.splitlines() if f"Assumed of {drafter}" in text]
        assert f"prior for {kind}" in line and line.endswith("unchecked.")
    done = specplan_here("optimize", str(problem), "--acceptance", "draft=prior", "--json")
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "decided"
    assert answer["explanation"]["assumed"]["draft"].startswith("prior for a smaller model")
    by_flag = specplan_here("optimize", str(problem), "--acceptance", "prior", "--json")
    assert set(json.loads(by_flag.stdout)["explanation"]["assumed"]) == {"draft", "text"}
