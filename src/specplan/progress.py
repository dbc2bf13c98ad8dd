"""Progress of long-running work, reported to a listener.

Functions that take long accept ``progress: Progress`` and call it as
``progress(description, done, total)``, in steps; what stands behind a colon in a description is
news of the same work. They know nothing of terminals;
`terminal_progress` is the listener that the command line gives them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from specplan.measure.progress import Progress, silent

__all__ = ["Progress", "silent", "terminal_progress"]


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """Bars on stderr while the block runs; silent where stderr is no terminal.

    Stdout is left alone, so that ``--json`` output can be piped while the bars are watched.
    """
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    tasks: dict[str, TaskID] = {}
    with bars:

        def show(description: str, done: int, total: int) -> None:
            work = description.partition(": ")[0]  # what follows may change from step to step
            if work not in tasks:
                tasks[work] = bars.add_task(description, total=total)
            bars.update(tasks[work], description=description, completed=done, total=total)

        yield show
