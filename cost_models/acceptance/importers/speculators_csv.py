"""`acceptance.csv` of speculators' evaluation, one row a subset of its benchmark.

Source: github.com/vllm-project/speculators, its vLLM evaluation: columns subset, num_drafts,
num_draft_tokens, num_accepted_tokens, acceptance_length (bonus counted) and acceptance_at_pos_i =
accepted at position i (0-based) / drafts, not conditional. Cells of positions that a run does not
draft are empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from itertools import pairwise

from specplan.cost_models.acceptance.fits.counts import falling
from specplan.cost_models.acceptance.fits.requests import Histogram, fit_requests
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source

_POSITION = "acceptance_at_pos_"


def _recognises(source: Source) -> bool:
    header = source.text.partition("\n")[0]
    return "num_drafts" in header and f"{_POSITION}0" in header and "{" not in header


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    rows = list(csv.DictReader(io.StringIO(source.text)))
    names = [str(row.get("subset")) for row in rows]
    if request.select is not None:
        rows = [row for row in rows if row.get("subset") == request.select]
    if not rows:
        raise source.error(
            f"it has no subset {request.select!r}" if names else "it has no rows",
            f"Its subsets are {', '.join(names)}." if names else "Take the file of a whole run.",
        )
    histograms = [_histogram(source, row) for row in rows]
    facts = {"subsets": [str(row.get("subset")) for row in rows]}
    return fit_requests(histograms, request.key, facts)


def _histogram(source: Source, row: Mapping[str, str | None]) -> Histogram:
    drafts = source.number(row, "num_drafts", low=1)
    rates: list[float] = []
    while row.get(f"{_POSITION}{len(rates)}") not in (None, ""):
        rates.append(source.number(row, f"{_POSITION}{len(rates)}", high=1))
    if not rates:
        raise source.error(f"subset {row.get('subset')!r} has no {_POSITION}0")
    survival = [1.0, *falling(rates), 0.0]
    return {len(rates): [drafts * (more - fewer) for more, fewer in pairwise(survival)]}


IMPORTER = Importer("speculators", "acceptance.csv of speculators", _recognises, _read)
