"""The kernels compute what plain torch does, under Triton's interpreter in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_kernels_agree_with_plain_torch(repository: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
            str(Path(__file__).with_name("interpreted.py")),
        ],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore::RuntimeWarning"},
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout
