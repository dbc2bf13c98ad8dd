"""Killed at any moment, `specplan optimize` leaves whole files only, and goes on from them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.backends.bundle import load_bundle  # noqa: E402
from tests.matrix import sized  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402
from tests.started import started_specplan  # noqa: E402

KILLS = sized(1, 3)
MEASURED = {"sources": ["prompt_lookup"], "methods": ["prompt_lookup"]}
"""What is measured for them takes long enough to be killed in: device, acceptance, bundle."""


def _check_files(folder: Path, out: Path) -> dict[str, int]:
    """Every file under its final name is whole; returns traces and rows by file."""
    lengths = {}
    for path in sorted(folder.rglob("*.json")):
        if path.name.startswith("."):
            continue  # a temporary name: the process died while it wrote
        document = json.loads(path.read_text())
        rows = document.get("ranks") or document.get("lengths") or document.get("forward") or ()
        lengths[path.name] = len(rows)
    if out.exists():
        load_bundle(out)
    return lengths


def test_killed_at_random_moments(tmp_path: Path) -> None:
    problem, out = write_problem(tmp_path), tmp_path / "bundle"
    described = json.loads(problem.read_text()) | MEASURED
    del described["models"]["drafts"]  # each has as many rows of its own as the target
    problem.write_text(json.dumps(described))
    profiles, command = tmp_path / ".specplan", ("optimize", str(problem), "--out", str(out))
    chance = random.Random(7)
    known: dict[str, int] = {}
    for kill in range(KILLS):
        process = started_specplan(*command)
        if process.wait(3.5 + 3.0 * kill + chance.uniform(0.0, 3.0)) is None:
            process.kill()
        now = _check_files(profiles, out) if profiles.exists() else {}
        assert all(now.get(name, 0) >= size for name, size in known.items()), "nothing is lost"
        known = now
    process = started_specplan(*command)
    assert process.wait(240) == 0, process.errors
    finished = _check_files(profiles, out)
    assert all(finished[name] >= size for name, size in known.items())
    assert load_bundle(out).report["candidates"]
