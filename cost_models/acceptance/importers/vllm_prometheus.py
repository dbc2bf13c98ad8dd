"""vLLM's counters, as scraped from `/metrics`; llama.cpp's server writes the same names.

Source: vllm/v1/spec_decode/metrics.py and docs/features/speculative_decoding: counters of drafts,
drafted and accepted tokens, and accepted tokens by `position` (0-based), which are *not*
conditional and count no bonus; the mean length is 1 + accepted / drafts.
"""

from __future__ import annotations

from collections import defaultdict

from specplan.cost_models.acceptance.fits.counts import fit_rates
from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest, chain_length
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source
from specplan.cost_models.prometheus_text import read_samples, selected

_DRAFTS, _DRAFTED = "spec_decode_num_drafts", "spec_decode_num_draft_tokens"
_ACCEPTED = "spec_decode_num_accepted_tokens"
_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos"


def _recognises(source: Source) -> bool:
    return f":{_DRAFTS}" in source.text and not source.documents


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    samples = read_samples(source, (_DRAFTS, _DRAFTED, _BY_POSITION, _ACCEPTED))
    totals: dict[str, float] = defaultdict(float)
    positions: dict[int, float] = defaultdict(float)
    for sample in selected(source, samples, request.select):
        value = source.checked(sample.value, sample.name)
        if sample.name == _BY_POSITION:
            positions[source.tokens(sample.labels.get("position"), "the label position")] += value
        else:
            totals[sample.name] += value
    drafts, drafted, accepted = (totals[name] for name in (_DRAFTS, _DRAFTED, _ACCEPTED))
    if not drafts:
        raise source.error(
            "it counts no drafts",
            "Scrape /metrics after a run with speculative decoding.",
        )
    facts: dict[str, object] = {
        "drafts": drafts,
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
    }
    if not positions:
        length = chain_length(source, request, drafted, drafts)
        mean = 1.0 + accepted / drafts
        return fit_mean_length(mean, length, request.key, rounds=drafts, provenance=facts)
    if sorted(positions) != list(range(len(positions))) or max(positions.values()) > drafts:
        raise source.error("its counts by position do not fit the number of drafts")
    counts = [positions[position] for position in range(len(positions))]
    if drafted < 0.98 * drafts * len(counts):
        facts["note"] = "some drafts were shorter: what they lack counts as not accepted"
    return fit_rates([count / drafts for count in counts], drafts, request.key, facts)


IMPORTER = Importer(
    "vllm-prometheus", "counters of vLLM (or llama.cpp) from /metrics", _recognises, _read
)
