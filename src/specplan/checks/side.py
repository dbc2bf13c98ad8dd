"""Another environment with specplan, used over its standard streams."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from specplan.checks import worker
from specplan.ir.errors import MissingCapabilityError, SpecplanError, UsageError


class AskedError(SpecplanError):
    """The other environment answered with an error of its own."""


class Side:
    """A process of another Python that runs `worker.py`; a context manager that ends it.

    Args:
        python: the interpreter of an environment in which some version of specplan is installed.

    Raises:
        UsageError: it cannot be started.
        MissingCapabilityError: it has no specplan.
    """

    def __init__(self, python: Path) -> None:
        self.python = python
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        try:
            self._process = subprocess.Popen(
                [str(python), "-P", str(Path(worker.__file__).resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                env=environment,
            )
        except OSError as error:
            raise UsageError(
                f"this Python cannot be started ({error.strerror})",
                where=str(python),
                remedy="Name the python of an environment, such as base/bin/python.",
            ) from error
        try:
            self.versions: dict[str, str] = self.ask("version")
        except AskedError as error:
            self.close()
            raise MissingCapabilityError(
                f"this Python has no specplan ({error.what})",
                where=str(python),
                remedy="Install the base version there.",
            ) from error

    def ask(self, do: str, **about: Any) -> Any:
        """Send a request and wait for the answer; see `worker.py`.

        Raises:
            AskedError: it answered with an error, whose `exit_code` this one has.
            UsageError: the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **about}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise UsageError(
                "this Python has ended without an answer",
                where=str(self.python),
                remedy="See its stderr above; it needs Python 3.11 or newer.",
            )
        reply = json.loads(line)
        if "error" in reply:
            error = AskedError(reply["error"], where=str(self.python))
            error.exit_code = reply["exit_code"]
            raise error
        return reply["answer"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
