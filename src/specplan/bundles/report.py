"""Reading what a bundle's report says: a damaged one ends in one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.ir.errors import SpecplanError, UsageError

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle


@contextmanager
def reading_report(source: Bundle | Path | None) -> Iterator[None]:
    """Whatever ends badly in here ends in an error that names the report.

    Its sums hold, so that nobody but its reader finds out that it is not what was written.

    Args:
        source: a bundle or its folder; for a problem file or None, whose report is made anew,
            errors pass as they are.

    Raises:
        UsageError: the report lacks something, or holds it in another form.
    """
    folder = source if source is None or isinstance(source, Path) else source.folder
    try:
        yield
    except (SpecplanError, OSError):
        raise
    except Exception as error:
        if folder is None or not folder.is_dir():
            raise
        raise UsageError(
            f"the bundle's report cannot be read: {type(error).__name__}: {str(error)[:200]}",
            where=str(folder / "report.json"),
            remedy="Restore the file, or run `specplan optimize` again.",
        ) from error
