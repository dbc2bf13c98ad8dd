"""`specplan train`, the stage before training: in one process, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_program import no_torch, specplan_here
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
        (("--drafter", "hydra9"), "no family of drafters"),
        (("--stage", "now"), "pays"),
    ):
        done = specplan_here("train", *FLAGS, *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_the_longest_answer_names_the_best_drafter_that_is_not_trained(folder: Path) -> None:
    done = specplan_here("optimize", *FLAGS, "--set", "sources=[]", "--show", "all")
    assert done.returncode == 0, done.stderr
    assert "not trained yet: would give " in done.stdout.splitlines()[-1]
