"""A run of an engine from the files that tell of it, whatever wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specplan.cost_models.devices.engines.benchmark import is_benchmark, read_benchmark
from specplan.cost_models.devices.engines.counters import is_counters, read_counters
from specplan.cost_models.devices.engines.run import ServedRun
from specplan.cost_models.foreign_file import Source
from specplan.ir.errors import UsageError


def read_served(
    paths: Sequence[Path | str], batch: float | None = None, select: str | None = None
) -> ServedRun:
    """What the files say of one run.

    Args:
        paths: the result of a serving benchmark; or scrapes of `/metrics`, one, or those from
            before and after the run.
        batch: requests that ran at once; scrapes do not tell it.
        select: "label=value" where a server counts several models.

    Raises:
        UsageError: a file is broken or of no known format, or `batch` is needed.
    """
    *earlier, last = [Source(path) for path in paths]
    if is_benchmark(last) and not earlier:
        return read_benchmark(last, batch)
    if len(earlier) > 1 or not is_counters(last):
        raise last.error(
            "this is neither the result of a serving benchmark nor scrapes of /metrics",
            "Give one result of `vllm bench serve --save-result` or of SGLang's bench_serving, or "
            "the scrapes of /metrics from before and after a run.",
        )
    if batch is None:
        raise UsageError(
            "counters do not tell how many requests ran at once",
            where="--batch",
            remedy="Give the concurrency of the load, for instance --batch 8.",
        )
    return read_counters(last, earlier[0] if earlier else None, batch, select)
