"""The result file of `vllm bench serve`.

Source: vllm/benchmarks/serve.py: `spec_decode_acceptance_rate` is a percentage,
`spec_decode_acceptance_length` counts the bonus, and
`spec_decode_per_position_acceptance_rates` are fractions of all drafts and do not. A file that also
has the metrics of requests is read by them: they say how much requests differ.
"""

from __future__ import annotations

from specplan.cost_models.acceptance.fits.counts import fit_rates
from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.fits.requests import fit_requests
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest, chain_length
from specplan.cost_models.acceptance.importers.vllm_requests import request_histograms
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source

_DRAFTS, _LENGTH = "spec_decode_num_drafts", "spec_decode_acceptance_length"
_RATES = "spec_decode_per_position_acceptance_rates"


def _recognises(source: Source) -> bool:
    return any(True for _ in source.objects(_DRAFTS))


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    results = list(source.objects(_DRAFTS))
    if len(results) != 1:
        what = "has several results" if results else f"has no {_DRAFTS}"
        raise source.error(f"the file {what}", "Give one result of a run that speculates.")
    result = results[0]
    drafts = source.number(result, _DRAFTS, low=1)
    facts = {name: result[name] for name in (_DRAFTS, _LENGTH) if name in result}
    if any(True for _ in source.objects("acceptance_histogram")):
        histograms = request_histograms(source, "acceptance_histogram")
        return fit_requests(histograms, request.key, facts)
    rates = source.numbers(result.get(_RATES, []), _RATES)
    if not rates:
        mean = source.number(result, _LENGTH, low=1)
        drafted = source.number(result, "spec_decode_draft_tokens")
        length = chain_length(source, request, drafted, drafts)
        return fit_mean_length(mean, length, request.key, rounds=drafts, provenance=facts)
    if _LENGTH in result and abs(source.number(result, _LENGTH) - 1 - sum(rates)) > 0.05:
        raise source.error(
            f"{_LENGTH} is {result[_LENGTH]}, and {1 + sum(rates):.3f} by the rates and the bonus"
        )
    return fit_rates(rates, drafts, request.key, facts)


IMPORTER = Importer("vllm-bench", "result JSON of `vllm bench serve`", _recognises, _read)
