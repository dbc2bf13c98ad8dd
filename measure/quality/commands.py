"""A user's command that scores outputs, in a process of its own with limits of time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from specplan.ir.errors import UsageError

_LIMITED = (
    "import os,resource,shutil,sys;m=int(sys.argv[1]);resource.setrlimit(resource.RLIMIT_AS,(m,m));"
    "resource.setrlimit(resource.RLIMIT_CORE,(0,0));"
    "sys.exit(f'no program {sys.argv[2]}') if shutil.which(sys.argv[2]) is None else None;"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)
"""Sets the limit and becomes the command, so that no code runs between fork and exec here."""


@dataclass(frozen=True)
class Scorer:
    """A command and its limits.

    Attributes:
        command: program and arguments.
        seconds: after which it and what it has started are ended.
        memory: address space that each process may take, in bytes.
    """

    command: tuple[str, ...]
    seconds: float
    memory: float

    def score(self, name: str, prompt: str, output: str) -> float | None:
        """What the command says of an output; None where it crashes or hangs.

        A last line that is a number from 0 to 1 is the score; else exit code 0 is 1 and another 0.

        Raises:
            UsageError: there is no such program.
        """
        record = json.dumps({"id": name, "prompt": prompt, "output": output})
        limited = [sys.executable, "-I", "-S", "-c", _LIMITED, str(int(self.memory))]
        process = subprocess.Popen(
            [*limited, *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            printed, errors = process.communicate(record, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)
        if process.returncode == 1 and errors == f"no program {self.command[0]}\n":
            raise UsageError(
                f"there is no program {self.command[0]}",
                where="limits.quality.command",
                remedy="Give its path, or install it.",
            )
        return _read(printed, process.returncode)


def _end(process: subprocess.Popen[str]) -> None:
    """End the command and everything that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _read(printed: str, code: int) -> float | None:
    if code < 0:  # a signal ended it
        return None
    last = printed.strip().splitlines()[-1:]
    with suppress(ValueError):
        number = float(last[0]) if last else -1.0
        if code == 0 and 0.0 <= number <= 1.0:
            return number
    return float(code == 0)


def drop(target: float | None, own: float | None) -> float:
    """By how much an output scores lower than the target's; 1 where the command did not end well.

    The mean of these drops is at least the drop of the mean score, and equal to it where the two
    outputs are drawn together so that none is better.
    """
    if own is None:
        return 1.0
    return max(0.0, (target or 0.0) - own)
