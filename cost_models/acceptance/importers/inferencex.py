"""Golden acceptance lengths of InferenceX, YAML.

Source: github.com/SemiAnalysisAI/InferenceX, golden_al_distribution/*.yaml:
{model: {thinking_on | thinking_off: {drafted tokens: mean length}}}, the bonus counted; the coding
category of SPEED-Bench.
"""

from __future__ import annotations

from typing import Any

from specplan.cost_models.acceptance.fits.length_curve import fit_length_curve
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source


def _recognises(source: Source) -> bool:
    return "thinking_o" in source.text and bool(_modes(source))


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    modes = _modes(source)
    if not modes:
        raise source.error(
            "it is no golden curve: {model: {thinking_on: {drafted tokens: length}}}"
        )
    if (request.select is None and len(modes) > 1) or request.select not in (None, *modes):
        what = "has curves for" if request.select is None else f"has no {request.select!r}, but"
        raise source.error(
            f"it {what} {', '.join(modes)}", f"Choose one with --select {next(iter(modes))}."
        )
    mode = request.select or next(iter(modes))
    curve = {
        source.tokens(drafted, "drafted tokens", 1): source.checked(
            length, f"the length at {drafted}", low=1
        )
        for drafted, length in modes[mode].items()
    }
    return fit_length_curve(curve, request.key, provenance={"mode": mode})


def _modes(source: Source) -> dict[str, dict[Any, Any]]:
    import yaml

    try:
        document = yaml.safe_load(source.text)
    except yaml.YAMLError:
        return {}
    if not isinstance(document, dict) or len(document) != 1:
        return {}
    (modes,) = document.values()
    if not isinstance(modes, dict) or not all(isinstance(v, dict) for v in modes.values()):
        return {}
    return {str(mode): curve for mode, curve in modes.items() if curve}


IMPORTER = Importer("inferencex", "golden acceptance lengths of InferenceX", _recognises, _read)
