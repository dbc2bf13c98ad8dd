"""What one run on a serving engine left, as a `ServedRun`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from specplan.backends.engines.probe_results import draft_lengths, failed_requests
from specplan.cost_models.devices.engine_runs import (
    ServedRun,
    is_benchmark,
    is_counters,
    read_benchmark,
    read_counters,
)
from specplan.cost_models.foreign_file import Source
from specplan.ir.errors import UsageError


def read_run(folder: Path, batch: int, draft_tokens: int | None) -> ServedRun:
    """What a run says: in its result, in what it printed, or in the counters around it.

    Args:
        folder: of the run: `result` with any ending, `bench.log`, `before.txt`, `after.txt`.
        batch: requests that ran at once.
        draft_tokens: per step (K) that the server was to draft; None where that varies.

    Raises:
        UsageError: there is no result, requests failed, or the server drafted otherwise.
    """
    before, after = folder / "before.txt", folder / "after.txt"
    counted = after.is_file() and before.is_file() and is_counters(Source(after))
    scrapes = (Source(after), Source(before)) if counted else None
    for source in _results(folder):
        if not is_benchmark(source):
            continue
        run = read_benchmark(source, float(batch))
        if failed := failed_requests(source):
            raise source.error(
                f"{failed} of {run.requests + failed} requests failed", "See bench.log."
            )
        lengths = draft_lengths(source)
        if draft_tokens is not None and lengths and draft_tokens not in lengths:
            raise source.error(
                f"the server drafted {lengths[0]} tokens per step, and the plan {draft_tokens}",
                "Start it with the files of the folder.",
            )
        length = read_counters(*scrapes, batch=float(batch)).tokens_per_round if scrapes else None
        return replace(run, tokens_per_round=length or run.tokens_per_round)
    if scrapes:
        return read_counters(*scrapes, batch=float(batch))
    raise UsageError(
        "the benchmark left no result that is known, and the server counts nothing at /metrics",
        where=str(folder),
        remedy="Let it write the JSON of `vllm bench serve --save-result` or of SGLang's "
        'bench_serving to "$RESULT", or print it.',
    )


def _results(folder: Path) -> Iterator[Source]:
    for path in (*sorted(folder.glob("result*")), folder / "bench.log"):
        if path.is_file():
            yield Source(path)
