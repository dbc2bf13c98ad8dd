"""`specplan train`, the stage before training: in one process, without torch."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.test_program import no_torch, specplan_here
from tests.measure.problems import write_problem
from tests.planner.big_models import EAGLE3_70B, write_70b

__all__ = ["no_torch"]
FLAGS = (
    "--target", "target", "--device", "8xh100-sxm", "--backend", "vllm", "--batch", "1",
    "--prompt", "1024", "--output", "512",
)  # fmt: skip
KEYS = {
    "family", "layers", "width", "vocabulary", "pays_from", "gain", "low", "high", "train_seconds",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_70b(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_which_drafter_would_pay(folder: Path, no_torch: str) -> None:
    done = specplan_here("train", *FLAGS, "--stage", "pays", "--drafter", "eagle3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split()[:3] == ["drafter", "layers", "width"]
    assert done.stdout.splitlines()[-1].endswith("--drafter eagle3 --out models/eagle3")
    done = specplan_here("train", *FLAGS, "--drafter", "eagle3", "--out", "heads/new", "--json")
    candidates = json.loads(done.stdout)["candidates"]
    assert candidates and all(one.keys() >= KEYS for one in candidates)
    assert candidates[0]["low"] < candidates[0]["gain"] < candidates[0]["high"]
    written = json.loads((folder / "heads/new/config.json").read_text())
    assert written == {key: EAGLE3_70B[key] for key in written}, "as the published head of a 70B"
    for arguments, words in (
        (("--drafter", "eagle3", "--out", "heads/new"), "config.json already"),
        (("--drafter", "eagle3", "--out", "heads"), "not empty and holds no drafter"),
        (("--drafter", "medusa", "--out", "medusa"), "cannot draft with heads without attention"),
        (("--drafter", "hydra9"), "no family of drafters"),
        (("--stage", "now"), "pays"),
    ):
        done = specplan_here("train", *FLAGS, *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("out", "name"),
    [
        ("models/new-head", "new_head"),
        ("models/Head.v2", "head_v2"),
        ("models/3rd", "head_3rd"),
        ("models/draft_model", "head_draft_model"),
    ],
)
def test_the_next_command_names_the_head(folder: Path, out: str, name: str) -> None:
    done = specplan_here("train", *FLAGS, "--drafter", "eagle3", "--out", out)
    following = done.stdout.splitlines()[-1]
    assert f"--draft {name}={out} " in following
    done = specplan_here(*shlex.split(following)[2:])
    assert done.returncode == 0, done.stderr


def test_the_longest_answer_names_the_best_drafter_that_is_not_trained(folder: Path) -> None:
    done = specplan_here("optimize", *FLAGS, "--set", "sources=[]", "--show", "all")
    assert done.returncode == 0, done.stderr
    assert "not trained yet: would give " in done.stdout.splitlines()[-1]


def test_a_head_is_trained_and_then_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From prompts to a plan with the head: nothing is edited by hand."""
    pytest.importorskip("torch")
    path = write_problem(tmp_path, prompts=3, output_tokens=10)
    lines = (tmp_path / "prompts.jsonl").read_text().splitlines()
    (tmp_path / "more.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    flags = (path.name, "--stage", "train", "--drafter", "medusa", "--out", "medusa")
    for arguments, words in (
        ((*flags, "--prompts", "more.jsonl"), "no prompts to train on"),
        (flags, "no prompts to train on"),
        ((*flags, "--loss", "l7"), "l7"),
        (flags[:3] + flags[5:], "one family and a folder"),
        ((*flags[:4], "mtp", *flags[5:]), "no head of its own"),
    ):
        done = specplan_here("train", *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    problem = json.loads(path.read_text())
    fresh = [{**json.loads(line), "split": "train"} for line in lines]
    texts = [{**one, "id": f"t{i}", "text": f"{one['text']}\n"} for i, one in enumerate(fresh)]
    (tmp_path / "more.jsonl").write_text("\n".join(map(json.dumps, texts)))
    more = ("--prompts", "more.jsonl", "--json")
    for steps, ran in (("2", 2), ("3", 1), ("3", 0)):
        done = specplan_here("train", *flags, *more, "--steps", steps)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["ran"] == ran
    problem["models"]["drafts"] = [{"name": "medusa", "path": "medusa", "dtype": "float64"}]
    problem |= {"device": "cpu-generic", "methods": ["parallel_heads"]}
    path.write_text(json.dumps(problem))
    done = specplan_here("optimize", path.name, "--json")
    assert done.returncode == 0, done.stderr
    basis = {one["of"]: one for one in json.loads(done.stdout)["explanation"]["basis"]}
    assert basis["medusa"]["kind"] == "measured", basis
