"""Processes to be killed: fresh interpreters, as a user starts them.

They are not forked: torch's threads do not always work in a process forked from one that has used
them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory


class Started:
    """A Python process of its own, whose output and errors go to files.

    Args:
        arguments: of the interpreter.
    """

    def __init__(self, *arguments: str) -> None:
        self._folder = TemporaryDirectory()
        self._out, self._err = (Path(self._folder.name) / name for name in ("out", "err"))
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=out,
                stderr=err,
                preexec_fn=_heed_interrupts,
            )

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """As `os.kill`; nothing where it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        self._process.kill()
        self._process.wait()

    def wait(self, timeout: float) -> int | None:
        """Its exit code, after so many seconds at most; None where it still runs."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    @property
    def output(self) -> str:
        """What it wrote to stdout."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._err.read_text()


def started_specplan(*arguments: str) -> Started:
    """The program `specplan` in a process of its own."""
    return Started("-m", "specplan.cli", *arguments)


def _heed_interrupts() -> None:
    """What a shell starts in the background ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
