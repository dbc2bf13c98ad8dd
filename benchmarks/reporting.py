"""How benchmarks say what goes on, and put their tables into pages."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from specplan.ir.files import write_atomic
from specplan.progress import Progress


def every(part: int) -> Progress:
    """Progress on stderr: a line whenever a part of all steps is done, of so many parts."""

    def tell(description: str, done: int, total: int) -> None:
        if done % max(1, total // part) == 0:
            print(f"{time.strftime('%H:%M:%S')} {description} {done}/{total}", file=sys.stderr)

    return tell


def write_between(page: Path, start: str, text: str, end: str) -> None:
    """Put a text between two marks of a page."""
    before, _, rest = page.read_text("utf-8").partition(start)
    _, _, after = rest.partition(end)
    write_atomic(page, before + start + text + end + after)
