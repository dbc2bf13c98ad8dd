"""Counters of a serving engine: what `/metrics` said before a run and after it.

vLLM, SGLang and TensorRT-LLM name them alike but for a prefix: the histogram
`e2e_request_latency_seconds`, `prompt_tokens_total`, `generation_tokens_total`; vLLM tells the wait
in its queue (`request_queue_time_seconds`) and counts drafts. Sources: vllm/v1/metrics/loggers.py,
sglang/srt/metrics/collector.py, TensorRT-LLM's tensorrt_llm/metrics/collector.py.
"""

from __future__ import annotations

from collections import defaultdict

from specplan.cost_models.devices.engines.run import ServedRun
from specplan.cost_models.foreign_file import Source
from specplan.cost_models.prometheus_text import read_samples, selected

_WHOLE, _WAIT = "e2e_request_latency_seconds", "request_queue_time_seconds"
_PROMPTS, _OUTPUTS = "prompt_tokens", "generation_tokens"
_DRAFTS, _ACCEPTED = "spec_decode_num_drafts", "spec_decode_num_accepted_tokens"
_NAMES = (
    f"{_WHOLE}_sum",
    f"{_WHOLE}_count",
    f"{_WAIT}_sum",
    _PROMPTS,
    _OUTPUTS,
    _DRAFTS,
    _ACCEPTED,
)
_NEEDED = (f"{_WHOLE}_sum", f"{_WHOLE}_count", _PROMPTS, _OUTPUTS)


def is_counters(source: Source) -> bool:
    """Whether a file looks like a scrape of such counters."""
    return f"{_WHOLE}_sum" in source.text and not source.documents


def read_counters(
    after: Source, before: Source | None, batch: float, select: str | None = None
) -> ServedRun:
    """What an engine did between two scrapes.

    Args:
        after: the later scrape.
        before: the earlier one; None for a server that did nothing else.
        batch: requests that ran at once: counters do not tell it.
        select: "label=value" where the server counts several models.

    Raises:
        UsageError: a counter is missing or no number, or nothing was served in between.
    """
    totals = _totals(after, select)
    for name, earlier in ({} if before is None else _totals(before, select)).items():
        totals[name] -= earlier
    seconds, requests, prompts, outputs = (totals[name] for name in _NEEDED)
    if min(seconds, requests, prompts, outputs) <= 0.0:
        raise after.error(
            "it counts nothing that was served since the scrape before",
            "Give the scrape from before the run first, the one from after it last.",
        )
    drafts = totals.get(_DRAFTS, 0.0)
    return ServedRun(
        requests=round(requests),
        in_flight=batch,
        prompt_tokens=prompts / requests,
        output_tokens=outputs / requests,
        request_seconds=(seconds - totals.get(f"{_WAIT}_sum", 0.0)) / requests,
        error=None,
        tokens_per_round=1.0 + totals[_ACCEPTED] / drafts if drafts > 0.0 else None,
        source=f"{after.path.name} (counters, {requests:.0f} requests)",
    )


def _totals(source: Source, select: str | None) -> dict[str, float]:
    """Sums over engines and ranks by the counter's name."""
    found: dict[str, float] = defaultdict(float)
    for sample in selected(source, read_samples(source, _NAMES), select):
        found[sample.name] += source.checked(sample.value, sample.name)
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise source.error(f"it lacks {', '.join(missing)}", "Scrape /metrics of a serving engine.")
    return found
