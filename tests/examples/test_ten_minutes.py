"""The example that trains heads and measures them: its page has its commands, and they run."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from specplan.planner.problem.loading import problem_from_dict

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples/training/medusa.sh"


def test_the_page_has_the_commands_of_the_script() -> None:
    values = {"$problem": "examples/training/problem.yaml", "$work": ".work/medusa",
              '"$steps"': "1600"}  # fmt: skip
    text = SCRIPT.read_text()
    for name, value in values.items():
        text = text.replace(name, value)
    commands = re.findall(r"^ *((?:specplan|python) (?:\\\n|.)*)$", text, re.MULTILINE)
    assert len(commands) == 3
    page = " ".join((ROOT / "docs/train.md").read_text().replace("\\\n", "").split())
    for command in commands:
        assert " ".join(command.replace("\\\n", "").split()) in page, command


def test_its_problem_leaves_lookups_out() -> None:
    """Trained heads are one of its drafters, so that it loads once they are there."""
    path = ROOT / "examples/training/problem.yaml"
    value = yaml.safe_load(path.read_text())
    assert [draft["name"] for draft in value["models"]["drafts"]] == ["medusa", "draft"]
    value["models"]["drafts"] = []
    problem = problem_from_dict(value, path.parent)
    assert problem.sources == () and problem.workload.greedy


@pytest.mark.long
def test_it_trains_and_measures(tmp_path: Path) -> None:
    """A few steps: a race stands at its end."""
    work = ROOT / ".work/medusa"
    if work.exists():
        pytest.skip("somebody trains there")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    try:
        done = subprocess.run(
            ["sh", str(SCRIPT), "2"], env={**os.environ, "PATH": path}, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        state = json.loads((work / "heads/training.json").read_text())
        assert state["step"] == 2 and state["recipe"]["rows"] == 2
        contenders = re.findall(r"^(\w+) .* ([\d.]+)x$", done.stdout, re.MULTILINE)
        assert [kind for kind, _ in contenders] == ["no", "Medusa", "draft"]
        assert float(contenders[0][1]) == 1.0
    finally:
        subprocess.run(["rm", "-rf", str(work)], check=True)


def test_prompts_are_followed_by_what_the_target_writes(tmp_path: Path) -> None:
    """Greedy answers behind the prompts of the same seed."""
    script = str(ROOT / "examples/training/texts.py")
    prompts, target = ["--count", "3", "--out"], str(ROOT / "examples/reference_models/target")
    subprocess.run([sys.executable, script, *prompts, str(tmp_path / "prompts")], check=True)
    write = runpy.run_path(script)["main"]  # here, where torch may be loaded
    write([*prompts, str(tmp_path / "answered"), "--target", target, "--tokens", "12"])
    rows = [json.loads(line) for line in (tmp_path / "answered").read_text().splitlines()]
    texts = {row["id"]: row["text"] for row in rows}
    for line in (tmp_path / "prompts").read_text().splitlines():
        prompt = json.loads(line)
        assert texts[prompt["id"]].startswith(prompt["text"])
        assert len(texts[prompt["id"]]) > len(prompt["text"])
