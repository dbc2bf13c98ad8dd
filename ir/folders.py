"""Folders that are never half written: all files in a temporary one first, then a rename."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specplan.ir.errors import UsageError
from specplan.ir.files import read_json


def check_destination(folder: Path, marker: str, what: str) -> None:
    """Refuse to write a folder over anything but one of its kind or an empty one.

    Args:
        folder: where it is to be.
        marker: the file by which its kind is known.
        what: how messages call its kind.

    Raises:
        UsageError: names the folder.
    """
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder / marker):
        raise UsageError(
            f"the folder is not empty and holds no {what}",
            where=str(folder),
            remedy="Choose another folder for --out.",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError("this is a file", where=str(folder), remedy="Choose a folder for --out.")


def _is_ours(marker: Path) -> bool:
    """Whether a file of that name is one that specplan wrote; others use such names too."""
    try:
        held = read_json(marker)
    except UsageError:
        return False
    return isinstance(held, dict) and "schema_version" in held


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """An empty folder to write in, which takes the place of `folder` when all went well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield staging
        staging.chmod(0o755)
        _put_in_place(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _put_in_place(staging: Path, folder: Path) -> None:
    """Rename the finished folder to its name; an earlier one steps aside first."""
    if not folder.exists():
        staging.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / "replaced")
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
