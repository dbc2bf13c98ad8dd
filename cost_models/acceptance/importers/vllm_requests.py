"""vLLM's metrics by request (`--per-request-spec-decode-metrics summary|detailed`).

Source: vLLM docs, features/speculative_decoding: `metrics.speculative_decoding` of a response has
`acceptance_histogram` (index j: steps that accepted exactly j drafted tokens, no bonus),
`num_spec_tokens` and, detailed, `per_step_accepted` and `per_step_drafted`;
`mean_acceptance_length` counts the bonus. The file is one response, a list, or one a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.acceptance.fits.requests import Histogram, fit_requests
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source

_HISTOGRAM, _MEAN = "acceptance_histogram", "mean_acceptance_length"


def _recognises(source: Source) -> bool:
    plain = any(True for _ in source.objects(_HISTOGRAM, _MEAN))
    return plain and not any(True for _ in source.objects("spec_decode_num_drafts"))


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    return fit_requests(request_histograms(source, _HISTOGRAM, _MEAN), request.key)


def request_histograms(source: Source, *names: str) -> list[Histogram]:
    """Histograms of all requests of a file that have these keys.

    Raises:
        UsageError: there are none, or one contradicts itself.
    """
    histograms = [_histogram(source, record) for record in source.objects(*names)]
    if not histograms:
        raise source.error(
            "it has no metrics of requests",
            "Start the server with --per-request-spec-decode-metrics detailed.",
        )
    return [histogram for histogram in histograms if histogram]


def _histogram(source: Source, record: Mapping[str, Any]) -> Histogram:
    counts = source.numbers(record[_HISTOGRAM], _HISTOGRAM)
    steps = sum(counts)
    mean = 1.0 + sum(j * count for j, count in enumerate(counts)) / steps if steps else 1.0
    if _MEAN in record and abs(source.number(record, _MEAN) - mean) > 0.01:
        raise source.error(
            f"{_MEAN} is {record[_MEAN]}, and {mean:.4f} by the histogram with the bonus"
        )
    by_length = record.get("acceptance_histogram_by_draft_length")
    if "per_step_accepted" in record:
        return _by_step(source, record)
    if isinstance(by_length, Mapping):
        lengths = {source.tokens(k, "a draft length"): k for k in by_length}
        return {
            k: source.numbers(by_length[name], f"histogram at {k}") for k, name in lengths.items()
        }
    return {len(counts) - 1: counts} if steps else {}


def _by_step(source: Source, record: Mapping[str, Any]) -> Histogram:
    accepted, drafted = (
        [source.tokens(value, name) for value in source.numbers(record.get(name), name)]
        for name in ("per_step_accepted", "per_step_drafted")
    )
    if len(accepted) != len(drafted) or any(
        hits > tried for hits, tried in zip(accepted, drafted, strict=True)
    ):
        raise source.error("per_step_accepted and per_step_drafted do not fit each other")
    histogram: dict[int, list[float]] = {}
    for hits, tried in zip(accepted, drafted, strict=True):
        if tried:
            histogram.setdefault(tried, [0.0] * (tried + 1))[hits] += 1
    return histogram


IMPORTER = Importer(
    "vllm-requests", "metrics of requests in vLLM's responses, JSON or JSON Lines",
    _recognises, _read,
)  # fmt: skip
