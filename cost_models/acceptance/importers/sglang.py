"""SGLang: `/get_server_info` (or `/server_info`), a result of `bench_serving`, or `/metrics`.

Source: SGLang docs, advanced_features/speculative_decoding; scheduler_metrics_mixin.py. One mean
over the server's life, `avg_spec_accept_length` of each internal state (gauge
`sglang:spec_accept_length`), which counts the bonus; the chain is `speculative_num_steps` long
when `speculative_eagle_topk` is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source
from specplan.cost_models.prometheus_text import read_samples, selected

_MEAN = "avg_spec_accept_length"
_NAMES = (_MEAN, "spec_accept_length", "accept_length")
_GAUGE, _STEPS, _NODES = (
    "spec_accept_length",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
)


def _recognises(source: Source) -> bool:
    if not source.documents:
        return f"sglang:{_GAUGE}" in source.text
    return any(True for _ in source.objects(_MEAN)) or any(
        "accept_length" in document for document in source.documents if isinstance(document, dict)
    )


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    lengths = _gauges(source, request) if not source.documents else _means(source)
    if not lengths:
        raise source.error(
            "it has no mean acceptance length",
            "Ask the server after a run with speculative decoding.",
        )
    mean = sum(lengths) / len(lengths)
    steps = request.draft_tokens or _steps(source)
    return fit_mean_length(
        mean,
        steps,
        request.key,
        rounds=request.rounds,
        provenance={"mean_lengths": lengths},
    )


def _means(source: Source) -> list[float]:
    for name in _NAMES:
        given = [holder[name] for holder in source.objects(name) if holder[name] is not None]
        if given:
            return [source.checked(value, name, low=1) for value in given]
    return []


def _gauges(source: Source, request: ImportRequest) -> list[float]:
    samples = selected(source, read_samples(source, (_GAUGE,)), request.select)
    return [source.checked(sample.value, _GAUGE, low=1) for sample in samples]


def _steps(source: Source) -> int:
    """Length of the drafted chain."""
    settings = _settings(source)
    widths = source.number(settings, "speculative_eagle_topk") if settings else 1.0
    if widths > 1:
        raise source.error(
            f"trees were drafted (speculative_eagle_topk {widths:.0f}): their mean length says "
            "nothing about other trees",
            "Run it with --speculative-eagle-topk 1, or measure with `specplan profile "
            "acceptance`.",
        )
    for name, root in ((_STEPS, 0), (_NODES, 1)):
        for holder in source.objects(name):
            if holder[name] is not None:
                return source.tokens(holder[name], name, 1 + root) - root
    for sample in read_samples(source, ("spec_num_steps",)):
        return source.tokens(sample.value, "spec_num_steps", 1)
    raise source.error("it does not say how many tokens are drafted", "Say so with --draft-tokens.")


def _settings(source: Source) -> Mapping[str, Any] | None:
    name = "speculative_eagle_topk"
    return next((holder for holder in source.objects(name) if holder[name] is not None), None)


IMPORTER = Importer("sglang", "server info or metrics of SGLang", _recognises, _read)
