"""`specplan check` as a user meets it: plans, live races of tiny models, profiles, exit codes."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan import api
from specplan.bundles.writing import write_result
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.planner import problem_from_dict
from specplan.result import Result
from tests.cli.test_program import no_torch, specplan, specplan_here
from tests.measure.problems import write_problem

__all__ = ["no_torch"]
OWN = Path(__file__).resolve().parents[2] / "examples/ci/plans"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundles of random models: plain decoding, and chains of four.

    Hardly a drafted token is accepted, so that the second is far slower.
    """
    folder = tmp_path_factory.mktemp("bundles")
    path = write_problem(folder, prompts=8, output_tokens=12)
    data = json.loads(path.read_text()) | {"device": "cpu-generic", "sources": []}
    del data["workload"]["prompts"]
    AcceptanceProfile.from_hazards([[0.999]], key=AcceptanceKey(Model("draft")), trials=9).save(
        folder / "draft.json"
    )
    data |= {"methods": ["draft_model"], "acceptance": {"draft": "draft.json"}}
    optimized = api.optimize(problem_from_dict(data, folder))
    (chain,) = (one for one in optimized.candidates if one.words == "chain of 4 by draft")
    for name, chosen in (("plain", optimized.search.plain), ("drafting", chain)):
        write_result(Result(replace(optimized.search, chosen=chosen)), folder / name)
    return folder


def race(folder: Path, head: str, *more: str, base: str = "") -> tuple[int, dict[str, Any]]:
    """Exit code and the only finding of a race."""
    prompts = ("--prompts", str(folder / "prompts.jsonl"), "--output-tokens", "6", "--limit", "3")
    against = ("--base", str(folder / base)) if base else ()
    arguments = (str(folder / head), *against, *prompts, *more, "--json")
    done = specplan_here("check", "speed", *arguments)
    assert done.stdout, done.stderr
    (item,) = json.loads(done.stdout)["items"]
    return done.returncode, item


def test_a_bundle_that_is_far_slower_regresses_and_the_other_way_round_does_not(
    folder: Path, tmp_path: Path
) -> None:
    code, item = race(folder, "drafting", "--junit", str(tmp_path / "j.xml"), base="plain")
    judged = item["data"]["judgement"]
    assert (code, item["status"], judged["verdict"], judged["sure"]) == (
        1, "regressed", "slower", True,
    )  # fmt: skip
    assert judged["low"] >= 1.0 and judged["ratio"] > 1.5
    assert item["data"]["differing_groups"] == 0
    assert len(item["data"]["pairs"]) == judged["pairs"] >= 7
    assert ElementTree.parse(tmp_path / "j.xml").find(".//failure") is not None
    code, item = race(folder, "plain", base="drafting")
    assert (code, item["status"]) == (0, "ok") and item["data"]["judgement"]["high"] <= 1.05


def test_what_is_undecided_is_stated_and_strict_makes_it_a_regression(folder: Path) -> None:
    hasty = ("--seconds", "1", "--threshold", "median:0.01%")
    code, item = race(folder, "plain", *hasty, base="plain")
    assert item["status"] in ("undecided", "regressed", "ok")
    assert not item["data"]["judgement"]["sure"]
    if item["status"] == "undecided":
        assert code == 0 and item["summary"].startswith("undecided whether slower by 0.01%")


def test_another_environment_runs_the_base(folder: Path) -> None:
    """This one again, in a process of its own; its bundle is the slow one."""
    python = ("--base-python", sys.executable)
    code, item = race(folder, "plain", *python, base="drafting")
    assert (code, item["status"]) == (0, "ok")
    assert f"of {sys.executable}" in item["data"]["against"]
    assert item["data"]["differing_groups"] == 0


def test_a_stored_baseline_is_the_ratio_to_plain_decoding(folder: Path, tmp_path: Path) -> None:
    stored = tmp_path / "baseline.json"
    prompts = ("--prompts", str(folder / "prompts.jsonl"))
    measure = (str(folder / "drafting"), *prompts, "--limit", "3", "--output-tokens", "6")
    done = specplan_here("check", "baseline", *measure, "--out", str(stored), "--seconds", "0")
    assert done.returncode == 0, done.stderr
    data = json.loads(stored.read_text())
    assert len(data["log_ratios"]) == 3 and data["pairs"] == 9
    assert all(ratio > 0.3 for ratio in data["log_ratios"])
    verdicts = {}
    for name, shift in (("once much faster", -1.0), ("once much slower", 1.0)):
        moved = [ratio + shift for ratio in data["log_ratios"]]
        stored.write_text(json.dumps(data | {"log_ratios": moved, "half_width": 0.0}))
        code, item = race(folder, "drafting", "--baseline", str(stored))
        verdicts[name] = (code, item["data"]["judgement"]["verdict"])
    assert verdicts == {"once much faster": (1, "slower"), "once much slower": (0, "not slower")}
    again = ("check", "speed", str(folder / "drafting"), *prompts, "--baseline", str(stored))
    for change, words in (
        ({"half_width": 0.5}, "as long"),
        ({"prompts": ["a", "b", "c"]}, "measured with prompts"),
        ({"kind": "other"}, "holds no baseline"),
    ):
        stored.write_text(json.dumps(data | change))
        done = specplan_here(*again)
        assert done.returncode in (2, 5) and words in done.stderr
    plain = (str(folder / "plain"), *prompts)
    done = specplan_here("check", "baseline", *plain, "--out", str(stored))
    assert done.returncode == 5 and "plain decoding" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 5, "nothing to compare with"),
        (("--base", "x", "--baseline", "y"), 2, "both given"),
        (("--base", "x", "--threshold", "mean:5%"), 2, "median:5%"),
        (("--base", "x", "--threshold", "5 apples"), 2, "5% or 0.05"),
        (("--base", "x", "--threshold", "120%"), 2, "5% or 0.05"),
        (("--base", "x"), 2, "no such file or folder"),
    ],
)
def test_races_that_cannot_be(
    folder: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    prompts = ("--prompts", str(folder / "prompts.jsonl"))
    done = specplan_here("check", "speed", str(folder / "plain"), *prompts, *arguments)
    assert done.returncode == code and words in done.stderr and done.stdout == ""


def test_plans_need_no_torch_and_end_in_every_form(no_torch: str, tmp_path: Path) -> None:
    folder = shutil.copytree(OWN / "lookup-8b-rtx4090", tmp_path / "lookup-8b-rtx4090")
    stored = json.loads((folder / "answer.json").read_text())
    stored["answer"]["plan"][0] = "plan other"
    (folder / "answer.json").write_text(json.dumps(stored))
    files = {name: tmp_path / name for name in ("markdown", "junit", "benchmark", "bencher")}
    summary = tmp_path / "summary.md"
    summary.write_text("# of another step\n")
    done = specplan(
        "check", "plans", str(tmp_path), "--github", "--json",
        "--markdown", str(files["markdown"]), "--junit", str(files["junit"]),
        "--benchmark-json", str(files["benchmark"]), "--bencher-json", str(files["bencher"]),
        PYTHONPATH=no_torch, GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["items"][0]["status"] == "regressed"
    command, error = done.stderr.splitlines()
    assert command.startswith("::error title=specplan check plans%3A lookup") and "%0A" in command
    assert "--update" in error
    assert all(path.stat().st_size > 100 for path in files.values())
    assert summary.read_text() == "# of another step\n" + files["markdown"].read_text()
    updated = specplan("check", "plans", str(tmp_path), "--update", PYTHONPATH=no_torch)
    assert updated.returncode == 0 and "Recorded anew" in updated.stdout
    again = specplan("check", "plans", str(tmp_path), PYTHONPATH=no_torch)
    assert again.returncode == 0 and again.stdout.endswith("specplan check plans: 1 ok\n")


def test_acceptance_of_two_profiles(tmp_path: Path) -> None:
    names = {"high": 0.8, "low": 0.6, "other": 0.8}
    for name, rate in names.items():
        key = AcceptanceKey(Model("draft"), task="prose" if name == "other" else "code")
        profile = AcceptanceProfile.from_hazards([[rate]], key=key, trials=3000)
        profile.save(tmp_path / f"{name}.json")
    paths = {name: str(tmp_path / f"{name}.json") for name in names}
    fell = specplan_here("check", "acceptance", paths["high"], paths["low"])
    assert fell.returncode == 1 and "less is accepted: 3.362 -> 2.306" in fell.stdout
    assert "depth 1: 0.800 (2400 of 3000) -> 0.600 (1800 of 3000), p = " in fell.stdout
    rose = specplan_here("check", "acceptance", paths["low"], paths["high"], "--json")
    assert rose.returncode == 0 and json.loads(rose.stdout)["items"][0]["status"] == "noted"
    same = specplan_here("check", "acceptance", paths["low"], paths["low"])
    assert same.returncode == 0 and "no drift" in same.stdout
    assert specplan_here("check", "acceptance", paths["low"], paths["other"]).returncode == 5
    for name, rates in (("log", [[0.7], [0.6]]), ("newer", [[0.7], [0.5]])):
        AcceptanceProfile.from_hazards(rates, trials=100, measured_depth=2).save(tmp_path / name)
    log = specplan_here("check", "acceptance", str(tmp_path / "log"), str(tmp_path / "newer"))
    assert "depth 2: 0.600 (60 of 100) -> 0.500 (50 of 100), p = " in log.stdout
    assert "depth 3: 0.600 (not counted) -> 0.500 (not counted)\n" in log.stdout
    assert specplan_here("check", "acceptance", paths["low"]).returncode == 2


def test_acceptance_measured_now(folder: Path, tmp_path: Path) -> None:
    data = json.loads((folder / "problem.yaml").read_text()) | {"sources": []}
    data["methods"], data["acceptance"] = ["draft_model"], {"draft": "draft.json"}
    path = folder / "now.yaml"
    path.write_text(yaml.safe_dump(data))
    base = AcceptanceProfile.from_hazards(
        [[0.999]], key=AcceptanceKey(Model("draft"), task="code"), trials=4000
    )
    base.save(tmp_path / "base.json")
    arguments = (str(tmp_path / "base.json"), "--problem", str(path), "--limit", "4")
    done = specplan_here("check", "acceptance", *arguments)
    assert done.returncode == 1, done.stderr
    assert "less is accepted: 4.990 -> " in done.stdout and "p = " in done.stdout
