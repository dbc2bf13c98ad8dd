"""A serving engine that commands of the user start, measure and stop.

Commands are given to `sh` in a folder of their own, with what they need in environment variables.
Everything that they print lies in files there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import write_atomic, write_json_atomic

POLL = 0.05
"""Seconds between two looks at a process."""
GRACE = 30.0
"""Seconds that a server may take to end before it is killed, or to stop answering."""
TAIL = 15
"""Lines of a log that a failure shows."""


@dataclass(frozen=True)
class Commands:
    """What the user runs.

    Attributes:
        url: of the server.
        serve: starts it; it is the server itself, or returns if there is a command that stops it.
        stop: stops it; "" for ending the process that `serve` is.
        timeout: seconds until a server that does not answer, or a run that does not end, has
            failed.
    """

    url: str
    serve: str
    stop: str
    timeout: float


class ServingError(SpecplanError):
    """A server or a run on it failed.

    Args:
        what: happened.
        log: the end of what was printed.
    """

    def __init__(self, what: str, log: str = "") -> None:
        super().__init__(what)
        self.log = log


class Server:
    """One server between its start and its stop.

    Args:
        commands: of the user.
        folder: of its files, where it is started.
        mark: a file that exists while the server runs, so that a later process can stop it.
    """

    def __init__(self, commands: Commands, folder: Path, mark: Path) -> None:
        self._commands, self._folder, self._mark = commands, folder, mark
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        """Start it, and wait until it answers.

        Raises:
            ServingError: it ended, or did not answer in time.
            UsageError: another server answers at the address.
        """
        self._stop_leftover()
        if _answers(self._commands.url):
            raise UsageError(
                "a server that `specplan tune` did not start runs there",
                where=self._commands.url,
                remedy="Stop it, or let the engine listen elsewhere (--url).",
            )
        self._process = _started(self._commands.serve, self._folder, self._environment, self._log)
        try:
            mark = {"pid": self._process.pid, "since": _since(self._process.pid)}
            write_json_atomic(self._mark, mark)
            until = time.monotonic() + self._commands.timeout
            while not _answers(self._commands.url):
                self._check_alive()
                if time.monotonic() > until:
                    raise self._failure(f"did not answer within {self._commands.timeout:g} s")
                time.sleep(POLL)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None, "it was started"
        try:
            if self._commands.stop:
                self._run_stop()
        finally:  # also where the command that stops it fails
            _end_group(self._process.pid)
            self._process.wait()
            self._mark.unlink(missing_ok=True)

    def run(self, command: str, folder: Path, variables: Mapping[str, str]) -> None:
        """Run a benchmark on the server.

        Args:
            command: for `sh`.
            folder: where it runs; it gets `bench.log`, and `before.txt` and `after.txt`: `/metrics`
                around the run, where there is such a page.
            variables: of its environment.

        Raises:
            ServingError: it failed, did not end in time, or the server ended.
        """
        log = folder / "bench.log"
        self._scrape(folder / "before.txt")
        bench = _started(command, folder, self._environment | dict(variables), log)
        try:
            until = time.monotonic() + self._commands.timeout
            while bench.poll() is None:
                self._check_alive()
                if time.monotonic() > until:
                    words = f"the benchmark did not end within {self._commands.timeout:g} s"
                    raise ServingError(words, log_end(log, self._log))
                time.sleep(POLL)
        finally:
            _end_group(bench.pid)
            bench.wait()
        self._check_alive()
        if bench.returncode:
            words = f"the benchmark failed (exit code {bench.returncode})"
            raise ServingError(words, log_end(log, self._log))
        self._scrape(folder / "after.txt")

    @property
    def _environment(self) -> dict[str, str]:
        return {"URL": self._commands.url, "FOLDER": str(self._folder)}

    def _check_alive(self) -> None:
        assert self._process is not None, "it was started"
        code = self._process.poll()
        if code is not None and (code or not self._commands.stop):
            raise self._failure(f"ended (exit code {code})")

    def _failure(self, what: str) -> ServingError:
        return ServingError(f"the server {what}", log_end(self._log))

    def _scrape(self, path: Path) -> None:
        with (
            suppress(OSError, HTTPException),
            urlopen(f"{self._commands.url}/metrics", timeout=10) as page,
        ):
            write_atomic(path, page.read())

    def _stop_leftover(self) -> None:
        """Stop a server that a process which was killed left behind."""
        if not self._mark.is_file():
            return
        mark = json.loads(self._mark.read_text(encoding="utf-8"))
        if self._commands.stop:
            self._run_stop()
        elif mark["since"] is not None and _since(mark["pid"]) == mark["since"]:
            _end_group(mark["pid"])
        self._mark.unlink()

    def _run_stop(self) -> None:
        """Run the command that stops it, and wait until it no longer answers."""
        log = self._folder / "stop.log"
        until = time.monotonic() + GRACE
        stop = _started(self._commands.stop, self._folder, self._environment, log)
        while stop.poll() is None or _answers(self._commands.url):
            if time.monotonic() > until:
                _end_group(stop.pid)
                raise UsageError(
                    f"the server still answers {GRACE:g} s after the command that stops it",
                    where="--stop",
                    remedy=f"Stop the server and mend the command; it printed: {log_end(log)}",
                )
            time.sleep(POLL)


def log_end(*paths: Path) -> str:
    """The last lines of logs, each under its name where there are several."""
    ends = []
    for path in paths:
        with suppress(OSError):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:]
            ends.append("\n".join([path.name + ":"] * (len(paths) > 1) + lines))
    return "\n".join(ends)


def _started(
    command: str, folder: Path, variables: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """A command in a group of processes of its own."""
    with log.open("ab") as output:
        return subprocess.Popen(
            ["sh", "-c", command],
            cwd=folder,
            env=os.environ | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _end_group(group: int) -> None:
    """End all processes of a group, by force where they do not end."""
    until = time.monotonic() + GRACE
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < until:
            with suppress(ChildProcessError):
                os.waitpid(group, os.WNOHANG)
            os.killpg(group, 0)
            time.sleep(POLL)
        os.killpg(group, signal.SIGKILL)


def _since(process: int) -> str | None:
    """When a process started, so that no other of its number is taken for it; None if unknown."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    return status.rpartition(")")[2].split()[19]


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=10) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False
