"""Benchmarks run as the scripts that they are, in this process: what they import is imported."""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path


def run_script(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `python script arguments` does, and its exit code."""
    out, err, before = io.StringIO(), io.StringIO(), (sys.argv, list(sys.path))
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    code: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv, sys.path[:] = before
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
