"""TensorRT-LLM: statistics of iterations, or of requests.

Source: cpp/include/tensorrt_llm/executor/types.h (`SpecDecodingStats`): `numDraftTokens`,
`numAcceptedTokens` (accepted drafts only, *no bonus*) and `numRequestsWithDraftTokens` of one
iteration; with attention data parallelism the other ranks repeat those of rank 0. Requests carry an
`acceptance_histogram` (newer servers), or `total_accepted_draft_tokens` and `total_draft_tokens`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.fits.requests import fit_requests
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest, chain_length
from specplan.cost_models.acceptance.importers.vllm_requests import request_histograms
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source

_STATS, _TOTAL = "specDecodingStats", "total_accepted_draft_tokens"
_HISTOGRAM = "acceptance_histogram"


def _recognises(source: Source) -> bool:
    if _STATS in source.text or any(True for _ in source.objects(_TOTAL)):
        return bool(source.documents)
    records = list(source.objects(_HISTOGRAM))
    return bool(records) and not any("mean_acceptance_length" in record for record in records)


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    if _STATS in source.text:
        return _iterations(source, request)
    if any(True for _ in source.objects(_HISTOGRAM)):
        return fit_requests(request_histograms(source, _HISTOGRAM), request.key)
    return _totals(source, request)


def _iterations(source: Source, request: ImportRequest) -> AcceptanceProfile:
    rows = [_row(source, stats) for stats in _stats(source)]
    rows = [row for row in rows if row[0] > 0 and row[2] > 0]
    if not rows:
        raise source.error(
            "no iteration drafted anything",
            "Take the statistics of a run with speculative decoding.",
        )
    if all(requests == 1 for _, _, requests in rows):  # an iteration is a round
        rounds: dict[int, list[float]] = {}
        for drafted, accepted, _ in rows:
            tried = source.tokens(drafted, "numDraftTokens")
            hits = source.tokens(accepted, "numAcceptedTokens")
            rounds.setdefault(tried, [0.0] * (tried + 1))[hits] += 1
        return fit_requests([rounds], request.key)
    drafted, accepted, requests = (sum(column) for column in zip(*rows, strict=True))
    facts = {"iterations": len(rows), "accepted_tokens": accepted, "draft_tokens_total": drafted}
    length = chain_length(source, request, drafted, requests)
    mean = 1.0 + accepted / requests
    return fit_mean_length(mean, length, request.key, rounds=requests, provenance=facts)


def _stats(source: Source) -> list[Mapping[str, Any]]:
    """The statistics of each iteration; rows may be JSON in text."""
    flat = [
        row for item in source.documents for row in (item if isinstance(item, list) else [item])
    ]
    iterations: list[Mapping[str, Any]] = []
    for row in flat:
        try:
            parsed = json.loads(row) if isinstance(row, str) else row
        except ValueError as error:
            raise source.error(f"a row is no JSON ({error})") from error
        if isinstance(parsed, dict) and parsed.get("attentionDpRank", 0) == 0:
            stats = parsed.get(_STATS)
            iterations += [stats] if isinstance(stats, dict) else []
    return iterations


def _row(source: Source, stats: Mapping[str, Any]) -> tuple[float, float, float]:
    drafted = source.number(stats, "numDraftTokens")
    accepted = source.number(stats, "numAcceptedTokens", high=drafted)
    return drafted, accepted, source.number(stats, "numRequestsWithDraftTokens")


def _totals(source: Source, request: ImportRequest) -> AcceptanceProfile:
    records = list(source.objects(_TOTAL, "total_draft_tokens"))
    drafted = sum(source.number(record, "total_draft_tokens") for record in records)
    accepted = sum(source.number(record, _TOTAL) for record in records)
    if request.draft_tokens is None or not drafted:
        raise source.error(
            "it counts tokens and not rounds" if drafted else "nothing was drafted",
            "Say how many tokens are drafted a round with --draft-tokens."
            if drafted
            else "Take the statistics of a run with speculative decoding.",
        )
    rounds = drafted / request.draft_tokens
    return fit_mean_length(
        1.0 + accepted / rounds,
        request.draft_tokens,
        request.key,
        rounds=rounds,
        provenance={"requests": len(records), "accepted_tokens": accepted},
    )


IMPORTER = Importer(
    "tensorrt-llm", "statistics of iterations or requests of TensorRT-LLM", _recognises, _read
)
