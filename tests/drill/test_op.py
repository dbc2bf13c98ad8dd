"""A drill: an op is two files, put into a copy of the tree; nothing else is edited."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from tests.planner.checkpoints import write_checkpoint
from tests.test_house import REPOSITORY

HERE = Path(__file__).parent / "op"
PLAN = """plan {name}
model target
model draft
state @kv = cache target
state @dkv = cache draft
round decode {{
  %t0 = root
  %c = repeat {length} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q
    yield %n
  }}
{trim}  %l = forward target %s cache=@kv pending=1
  %a = accept %s target=%l
  %e = emit %a
  commit @kv %e
  commit @dkv %e
}}
"""
BACKENDS = ("oracle", "eager", "static")
DEPTH, LENGTH = 2, 4
"""Tokens that are judged where the draft is trimmed, and that are drafted."""
TEXTS = {
    "trimmed": PLAN.format(name="trimmed", length=LENGTH, trim=f"  %s = trim %c depth={DEPTH}\n"),
    "whole": PLAN.format(name="whole", length=LENGTH, trim="").replace("%s", "%c"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the op, two plans, and two checkpoints."""
    folder = tmp_path_factory.mktemp("drill")
    package = folder / "site" / "specplan"
    package.mkdir(parents=True)
    for path in (REPOSITORY / "src" / "specplan").iterdir():
        if path.name in ("ir", "backends"):  # the rest is as it is
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, package / path.name, ignore=ignored)
        elif path.name != "__pycache__":
            (package / path.name).symlink_to(path.resolve())
    (package / "backends" / "ops").mkdir(exist_ok=True)
    shutil.copy(HERE / "ir_trim.py", package / "ir" / "ops" / "trim.py")
    shutil.copy(HERE / "backends_trim.py", package / "backends" / "ops" / "trim.py")
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(text)
    for name in ("target", "draft"):  # one and the same
        write_checkpoint(folder / name, num_hidden_layers=2)
    return folder


@pytest.fixture(scope="module")
def answers(home: Path) -> Any:
    """What the copy says of the plans; see `op/checks.py`."""
    done = subprocess.run(
        [sys.executable, HERE / "checks.py", home, *BACKENDS],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(home / "site")},
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_read_verified_and_priced(answers: Any) -> None:
    for name, answer in answers.items():
        assert answer["broken"] == [] and answer["read_again"]
        assert ("prune" in answer["asked"]) == (name == "trimmed")


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_runs(answers: Any, backend: str) -> None:
    """The same text in more rounds: of each draft, all of it right, fewer tokens are judged."""
    by_plan = {name: answer["completions"][backend] for name, answer in answers.items()}
    for depth, name in ((DEPTH, "trimmed"), (LENGTH, "whole")):
        for tokens, rounds in by_plan[name]:
            assert rounds == ceil(len(tokens) / (depth + 1)), name
    trimmed, whole = ([tokens for tokens, _ in by_plan[name]] for name in TEXTS)
    assert trimmed == whole
