"""Runs of serving engines, read from the files that engines and load generators write.

Results of serving benchmarks (`vllm bench serve`, SGLang's `bench_serving`, TensorRT-LLM's copy)
descend from one script: one JSON object per run with `completed`, `duration`, `total_input_tokens`,
`total_output_tokens`, and means and deviations of times in milliseconds: `ttft` to the first token,
`tpot` per further token, `e2el` (`e2e_latency` in SGLang) of a request. Sources:
vllm/benchmarks/serve.py (`calculate_metrics`), sglang/bench_serving.py.

Counters of an engine (`/metrics`) have the same names but for a prefix: the histogram
`e2e_request_latency_seconds`, `prompt_tokens_total`, `generation_tokens_total`; vLLM also counts
the wait in its queue (`request_queue_time_seconds`) and drafts; SGLang counts verifications of
finished requests (`spec_verify_calls_total`). Sources:
vllm/v1/metrics/loggers.py, sglang/srt/metrics/collector.py, TensorRT-LLM's
tensorrt_llm/metrics/collector.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.cost_models.foreign_file import Source
from specplan.cost_models.intervals import HALF_WIDTH_90
from specplan.cost_models.prometheus_text import read_samples, selected
from specplan.ir.errors import UsageError


@dataclass(frozen=True)
class ServedRun:
    """What one run of an engine says, means over its requests.

    Attributes:
        requests: that were finished.
        in_flight: requests that ran at once.
        prompt_tokens: of a request.
        output_tokens: of a request.
        request_seconds: of a request, its prompt included, its wait in a queue left out where the
            engine tells it.
        error: relative half width of the 90 % interval of `request_seconds`; None where the run
            does not tell how its requests differ.
        tokens_per_round: emitted per request and round, the bonus included; None where it does not
            say.
        source: what was read, in words.
        first_token_seconds: to the first token of a request; None where it does not say.
    """

    requests: int
    in_flight: float
    prompt_tokens: float
    output_tokens: float
    request_seconds: float
    error: float | None
    tokens_per_round: float | None
    source: str
    first_token_seconds: float | None = None

    @property
    def seconds_per_token(self) -> float:
        """Seconds of a request per output token."""
        return self.request_seconds / self.output_tokens


def read_served(
    paths: Sequence[Path | str], batch: float | None = None, select: str | None = None
) -> ServedRun:
    """What the files say of one run.

    Args:
        paths: the result of a serving benchmark; or scrapes of `/metrics`, one, or those from
            before and after the run.
        batch: requests that ran at once; scrapes do not state it.
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
            "counters do not state how many requests ran at once",
            where="--batch",
            remedy="Give the concurrency of the load, for instance --batch 8.",
        )
    return read_counters(last, earlier[0] if earlier else None, batch, select)


_REQUEST = ("e2el", "e2e_latency")
_LENGTHS = ("spec_decode_acceptance_length", "accept_length")
_KEYS = ("completed", "duration", "total_input_tokens", "total_output_tokens")


def is_benchmark(source: Source) -> bool:
    """Whether a file looks like the result of such a run."""
    return any(True for _ in source.objects(*_KEYS))


def read_benchmark(source: Source, batch: float | None = None) -> ServedRun:
    """The run that a file tells of; of several lines the last one.

    Args:
        source: the file.
        batch: requests that ran at once; without it, by Little's law the sum of all request times
            over the time of the run.

    Raises:
        UsageError: figures are missing or no numbers.
    """
    results = list(source.objects(*_KEYS))
    if not results:
        raise source.error(f"it has no object with {', '.join(_KEYS)}")
    result = results[-1]
    requests, duration, prompts, outputs = (source.number(result, name, low=1e-9) for name in _KEYS)
    seconds, deviation = _request_seconds(source, result, outputs / requests)
    accepted = next((result[name] for name in _LENGTHS if result.get(name) is not None), None)
    return ServedRun(
        requests=round(requests),
        in_flight=batch or requests * seconds / duration,
        prompt_tokens=prompts / requests,
        output_tokens=outputs / requests,
        request_seconds=seconds,
        error=None if deviation is None else HALF_WIDTH_90 * deviation / seconds / requests**0.5,
        tokens_per_round=None
        if accepted is None
        else source.checked(accepted, "acceptance length", low=1.0),
        source=f"{source.path.name} (serving benchmark, {requests:.0f} requests)",
        first_token_seconds=None
        if result.get("mean_ttft_ms") is None
        else source.number(result, "mean_ttft_ms") / 1e3,
    )


def _request_seconds(
    source: Source, result: Mapping[str, Any], output_tokens: float
) -> tuple[float, float | None]:
    """Mean and standard deviation of the time of a request, seconds."""
    for name in _REQUEST:
        if result.get(f"mean_{name}_ms") is not None:
            mean = source.number(result, f"mean_{name}_ms", low=1e-9)
            return mean / 1e3, _deviation(source, result, name)
    first = source.number(result, "mean_ttft_ms", low=1e-9)
    further = source.number(result, "mean_tpot_ms", low=1e-9)
    return (first + further * (output_tokens - 1.0)) / 1e3, None


def _deviation(source: Source, result: Mapping[str, Any], name: str) -> float | None:
    key = f"std_{name}_ms"
    return None if result.get(key) is None else source.number(result, key) / 1e3


_WHOLE, _WAIT = "e2e_request_latency_seconds", "request_queue_time_seconds"
_PROMPTS, _OUTPUTS = "prompt_tokens", "generation_tokens"
_DRAFTS, _ACCEPTED = "spec_decode_num_drafts", "spec_decode_num_accepted_tokens"
_VERIFIED = "spec_verify_calls"
_NAMES = (
    f"{_WHOLE}_sum",
    f"{_WHOLE}_count",
    f"{_WAIT}_sum",
    _PROMPTS,
    _OUTPUTS,
    _DRAFTS,
    _ACCEPTED,
    _VERIFIED,
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
        batch: requests that ran at once, which counters do not state.
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
    return ServedRun(
        requests=round(requests),
        in_flight=batch,
        prompt_tokens=prompts / requests,
        output_tokens=outputs / requests,
        request_seconds=(seconds - totals.get(f"{_WAIT}_sum", 0.0)) / requests,
        error=None,
        tokens_per_round=_tokens_per_round(totals, requests, outputs),
        source=f"{after.path.name} (counters, {requests:.0f} requests)",
    )


def _tokens_per_round(totals: Mapping[str, float], requests: float, outputs: float) -> float | None:
    """Of vLLM's drafts, or of SGLang's verifications, before which a prefill gives one token."""
    if totals.get(_DRAFTS, 0.0) > 0.0:
        return 1.0 + totals[_ACCEPTED] / totals[_DRAFTS]
    verified = totals.get(_VERIFIED, 0.0)
    return (outputs - requests) / verified if verified > 0.0 else None


def _totals(source: Source, select: str | None) -> dict[str, float]:
    """Sums over engines and ranks by the counter's name."""
    totals: dict[str, float] = defaultdict(float)
    for sample in selected(source, read_samples(source, _NAMES), select):
        totals[sample.name] += source.checked(sample.value, sample.name)
    missing = [name for name in _NEEDED if name not in totals]
    if missing:
        raise source.error(f"it lacks {', '.join(missing)}", "Scrape /metrics of a serving engine.")
    return totals
