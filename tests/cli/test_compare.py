"""`specplan compare`, and `specplan init` for a head that is not trained yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_program import specplan_here
from tests.planner.big_models import EAGLE3_70B, LLAMA_70B, write_70b

POINT = ("--backend", "vllm", "--batch", "1,16", "--prompt", "1024", "--output", "512")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_70b(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_problem_on_two_devices_and_two_problems(folder: Path) -> None:
    flags = ("--target", "target", "--draft", "eagle=eagle", *POINT)
    for device in ("8xh100-sxm", "8xh200"):
        done = specplan_here("init", f"{device}.yaml", *flags, "--device", device)
        assert done.returncode == 0, done.stderr
    files = ("8xh100-sxm.yaml", "8xh200.yaml", "--acceptance", "eagle=0.8", "--json")
    by_files = specplan_here("compare", *files)
    assert by_files.returncode == 0, by_files.stderr
    devices = ("8xh100-sxm.yaml", "--device", "8xh100-sxm,8xh200", "--acceptance", "eagle=0.8")
    by_devices = specplan_here("compare", *devices, "--json")
    rows = json.loads(by_devices.stdout)["rows"]
    assert rows == json.loads(by_files.stdout)["rows"]
    for row in rows:
        assert row["decode_gain_b_over_a"] == pytest.approx(row["tpot_ms_a"] / row["tpot_ms_b"])
        assert row["decode_tokens_per_s_b"] == pytest.approx(1e3 * row["batch"] / row["tpot_ms_b"])
        assert 1.0 < row["decode_gain_b_over_a"] < 1.5, (
            "an H200 has 1.43 times the bandwidth of an H100"
        )
    for arguments, code, words in (
        (("8xh200.yaml",), 2, "two bundles or problem files"),
        (("8xh200.yaml", "--device", "8xh100-sxm"), 2, "--device A,B"),
        (("8xh200.yaml", "8xh100-sxm.yaml", "--device", "l4,l40"), 2, "two bundles"),
        (("8xh200.yaml", "8xh100-sxm.yaml"), 6, "no acceptance is known"),
        (("8xh200.yaml", "none.yaml"), 2, "none.yaml"),
    ):
        done = specplan_here("compare", *arguments)
        assert done.returncode == code and words in done.stderr, done.stderr


def test_a_head_that_is_not_trained_yet(folder: Path) -> None:
    flags = ("--target", "target", "--device", "8xh100-sxm", *POINT)
    done = specplan_here("init", "new.yaml", *flags, "--new-head", "head=heads/new")
    assert done.returncode == 0, done.stderr
    written = json.loads((folder / "heads/new/config.json").read_text())
    assert written == {key: EAGLE3_70B[key] for key in written}, "as the published head of a 70B"
    for arguments, words in (
        (("--new-head", "head=heads/new"), "config.json already"),
        (("--new-head", "head"), "a name, a folder"),
        (("--target", "eagle2", "--new-head", "head=heads/other"), "eagle2"),
    ):
        done = specplan_here("init", "other.yaml", *flags, *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    config = {key: value for key, value in LLAMA_70B.items() if key != "intermediate_size"}
    (folder / "target/config.json").write_text(json.dumps(config))
    done = specplan_here("init", "other.yaml", *flags, "--new-head", "head=heads/other")
    assert done.returncode == 2 and "no intermediate_size" in done.stderr
