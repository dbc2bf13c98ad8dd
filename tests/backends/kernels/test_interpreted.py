"""The kernels compute what plain torch does, under Triton's interpreter in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def test_kernels_agree_with_plain_torch(repository: Path) -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")
    if version(triton.__version__) < (3, 8) and version(numpy.__version__) >= (2, 4):
        pytest.skip(f"the interpreter of triton {triton.__version__} needs NumPy before 2.4")
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
    assert "11 passed" in done.stdout
