"""The composite action and the workflow: they parse, and use what there is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from specplan.cli.check import check

CI = Path(__file__).resolve().parents[2] / "examples/ci"
ACTION: dict[str, Any] = yaml.safe_load((CI / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]


def options_of(command: str) -> set[str]:
    """Options that a subcommand of `specplan check` takes."""
    group = typer.main.get_command(check)
    parameters = group.commands[command].params  # type: ignore[attr-defined]
    return {word for parameter in parameters for word in parameter.opts}


def test_the_action_is_composite_and_every_step_names_its_shell() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" and step["run"] and step["name"] for step in STEPS)
    assert all(item["description"] for item in ACTION["inputs"].values())


@pytest.mark.parametrize("step", STEPS, ids=lambda step: str(step["name"]))
def test_inputs_reach_scripts_by_the_environment_only(step: dict[str, Any], tmp_path: Path) -> None:
    assert "${{" not in step["run"], "an input in a script is code to whoever writes it"
    used = set(re.findall(r"inputs\.([a-z-]+)", str(step.get("env")) + str(step.get("if"))))
    assert used and used <= set(ACTION["inputs"])
    for name in step.get("env", {}):
        assert f"${name}" in step["run"]
    script = tmp_path / "step.sh"
    script.write_text(step["run"])
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_commands_and_options_exist() -> None:
    runs = [step["run"] for step in STEPS if '" check ' in step["run"]]
    commands = [re.findall(r"specplan\" check ([a-z]+)", run) for run in runs]
    assert commands == [["plans"], ["speed"]]
    for (command,), run in zip(commands, runs, strict=True):
        named = set(re.findall(r"(--[a-z-]+)", run))
        assert named and named <= options_of(command)


def test_the_workflow_gives_the_action_inputs_it_has() -> None:
    workflow = yaml.safe_load((CI / "workflow.yml").read_text())
    assert workflow[True] == {"pull_request": None}  # YAML 1.1 reads "on" as true
    uses = [
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if step["uses"] == "./.github/actions/specplan-check"
    ]
    assert len(uses) == 2
    assert all(set(step["with"]) <= set(ACTION["inputs"]) for step in uses)
    assert (CI.parents[1] / uses[0]["with"]["records"]).is_dir()
