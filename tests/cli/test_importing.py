"""`specplan import acceptance` without torch, and a plan from what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from tests.cli.test_program import no_torch, specplan, specplan_here
from tests.cost_models.acceptance.importer_files import GOLDEN_YAML, PROMETHEUS
from tests.planner.checkpoints import write_checkpoint

__all__ = ["no_torch"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints, a log, and a problem that names the profile of the log."""
    for name, seed in (("target", 0), ("draft", 1)):
        write_checkpoint(tmp_path / name, seed=seed)
    (tmp_path / "metrics.txt").write_text(PROMETHEUS)
    problem = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target", "dtype": "float32"},
            "drafts": [{"name": "draft", "path": "draft", "dtype": "float32"}],
        },
        "device": "cpu-generic",
        "acceptance": {"draft": "draft.json"},
        "workload": {"batch_sizes": [1], "prompt_tokens": 12, "output_tokens": 16, "task": "code"},
    }
    (tmp_path / "problem.yaml").write_text(yaml.safe_dump(problem))
    return tmp_path


def test_a_log_becomes_a_plan(folder: Path, no_torch: str) -> None:
    profile = folder / "draft.json"
    done = specplan(
        *("import", "acceptance", str(folder / "metrics.txt"), "--drafter", "draft"),
        *("--task", "code", "--out", str(profile), "--json"),
        PYTHONPATH=no_torch,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["evidence"] == "hazards"
    assert record["provenance"]["format"] == "vllm-prometheus"
    first = record["hazards"][0][0]
    assert first["mean"] == pytest.approx(0.71)
    assert first["low"] < 0.71 < first["high"]
    assert first["trials"] == 1000
    loaded = AcceptanceProfile.load(profile)
    assert loaded.key.task == "code"
    done = specplan(
        "optimize", str(folder / "problem.yaml"), "--out", str(folder / "bundle"), "--json",
        PYTHONPATH=no_torch,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    priced = [c for c in json.loads((folder / "bundle/report.json").read_text())["candidates"]]
    chains = [c for c in priced if c["family"] == "chain by draft" and c["estimates"]]
    accepted = np.cumprod([rates[0]["mean"] for rates in record["hazards"]])
    assert 1.0 + accepted[:3].sum() == pytest.approx(2.66)
    known = [c for c in chains if c["options"]["nodes"] <= len(accepted)]
    assert known
    for chain in known:
        tokens = 1.0 + accepted[: chain["options"]["nodes"]].sum()
        assert chain["estimates"][0]["tokens_per_round"]["mean"] == pytest.approx(tokens)
    words = " ".join(specplan_here("explain", str(folder / "bundle")).stdout.split())
    assert 'acceptance of "draft": imported today, ' in words
    assert "from metrics.txt (vllm-prometheus, 1,000" in words


def test_what_people_see(folder: Path) -> None:
    golden = folder / "golden.yaml"
    golden.write_text(GOLDEN_YAML)
    command = ("import", "acceptance", str(golden), "--drafter", "mtp")
    done = specplan_here(*command, "--out", str(folder / "mtp.json"))
    assert done.returncode == 0, done.stderr
    assert "mtp was imported from golden.yaml (inferencex" in done.stdout
    assert "acceptance: {mtp: " in done.stdout
    assert "rank 0" in done.stdout and "rank 1" not in done.stdout  # no second choices
    missing = specplan_here(*command)
    assert missing.returncode == 2
    done = specplan_here(*command, "--out", str(folder / "x.json"), "--select", "thinking_off")
    assert done.returncode == 2
    assert "thinking_on" in done.stderr
    assert not (folder / "x.json").exists()


def test_another_temperature_is_another_profile(folder: Path) -> None:
    done = specplan_here(
        *("import", "acceptance", str(folder / "metrics.txt"), "--drafter", "draft"),
        *("--temperature", "0.6", "--out", str(folder / "draft.json")),
    )
    assert done.returncode == 0, done.stderr
    done = specplan_here("optimize", str(folder / "problem.yaml"), "--out", str(folder / "bundle"))
    assert done.returncode == 2
    assert "temperature" in done.stderr
