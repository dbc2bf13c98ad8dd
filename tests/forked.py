"""Processes to be killed, forked from this one: they need not import torch again."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from specplan.cli.main import run


class Forked:
    """A process of its own that does some work, with an output and errors of its own.

    Args:
        work: what it does; it ends with the exit code that `SystemExit` gives.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._folder = TemporaryDirectory()
        self._out, self._err = (Path(self._folder.name) / name for name in ("out", "err"))
        self._process = get_context("fork").Process(target=self._run, args=(work,))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def _run(self, work: Callable[[], object]) -> None:
        # what a shell starts in the background ignores SIGINT, and so do its children
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, path in ((1, self._out), (2, self._err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        work()

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """As `os.kill`."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        self._process.kill()
        self._process.join()

    def wait(self, timeout: float) -> int | None:
        """Its exit code, after so many seconds at most; None where it still runs."""
        self._process.join(timeout)
        return self._process.exitcode

    @property
    def output(self) -> str:
        """What it wrote to stdout."""
        return self._out.read_text() if self._out.exists() else ""

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._err.read_text() if self._err.exists() else ""


def forked_specplan(*arguments: str) -> Forked:
    """The program `specplan` in a process of its own."""

    def program() -> None:
        sys.argv = ["specplan", *arguments]
        run()

    return Forked(program)
