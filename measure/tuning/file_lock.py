"""One writer at a time among processes that append lines to a file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


class FileLock:
    """A lock for one writer at a time among processes that share a file; it dies with its process.

    A partial last line, left by a process that died while writing, is removed when the lock is
    acquired.

    Args:
        path: of the file; the lock is a file next to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = Path(f"{self._path}.lock").open("ab")  # noqa: SIM115 - until release
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if self._path.exists():
            whole = _whole_lines(self._path)
            if whole is not None:
                os.truncate(self._path, whole)
        return True

    def release(self) -> None:
        """Let the next one in."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _whole_lines(path: Path) -> int | None:
    """Bytes up to the end of the last whole line; None where that is the end of the file."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        if not end:
            return None
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return None
        file.seek(0)
        return file.read().rfind(b"\n") + 1
