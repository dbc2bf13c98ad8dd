"""Acceptance of Model-Optimizer's specdec_bench, JSON.

Source: github.com/NVIDIA/Model-Optimizer, examples/specdec_bench, metrics/acceptance_rate.py:
`Acceptance_Length_Histogram` counts steps by emitted tokens, so the bonus is counted (length 1:
nothing accepted); `Joint_Acceptance_Rate[k]` is P(at least k emitted), and
`Conditional_Acceptance_Rate` its ratios; `Average_AL` is a mean over requests and not over steps.
Block verification withholds rates, and its histogram is read alike: what a round emits is what
counts.
"""

from __future__ import annotations

from specplan.cost_models.acceptance.fits.counts import fit_rates
from specplan.cost_models.acceptance.fits.requests import fit_requests
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source

_HISTOGRAM, _JOINT = "Acceptance_Length_Histogram", "Joint_Acceptance_Rate"


def _recognises(source: Source) -> bool:
    return any(True for name in (_HISTOGRAM, _JOINT) for _ in source.objects(name))


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    histogram = _table(source, _HISTOGRAM)
    if histogram:
        deepest = max(max(histogram) - 1, request.draft_tokens or 1)
        counts = [histogram.get(accepted + 1, 0.0) for accepted in range(deepest + 1)]
        return fit_requests([{deepest: counts}], request.key)
    joint = _table(source, _JOINT)
    if not joint:
        raise source.error(f"it has neither {_HISTOGRAM} nor {_JOINT}")
    rates, last = [], 0.0
    for length in range(max(joint), 1, -1):  # lengths that never occurred have no entry
        last = joint.get(length, last)
        rates.append(last)
    return fit_rates(rates[::-1], request.rounds, request.key)


def _table(source: Source, name: str) -> dict[int, float]:
    """Numbers by emitted tokens; the bonus makes them at least 1."""
    holders = list(source.objects(name))
    if len(holders) > 1:
        raise source.error(f"it has several {name}", "Give the file of one run.")
    if not holders or not isinstance(holders[0][name], dict):
        return {}
    return {
        source.tokens(length, "a length", 1): source.checked(value, f"{name}[{length}]")
        for length, value in holders[0][name].items()
    }


IMPORTER = Importer(
    "specdec-bench", "acceptance JSON of Model-Optimizer's specdec_bench", _recognises, _read
)
