"""Results of serving benchmarks: `vllm bench serve`, SGLang's `bench_serving`, TensorRT-LLM's copy.

All three descend from one script and write one JSON object per run: `completed`, `duration`,
`total_input_tokens`, `total_output_tokens`, and means and deviations of times in milliseconds,
`ttft` to the first token, `tpot` per further token, `e2el` (`e2e_latency` in SGLang) of a request.
Sources: vllm/benchmarks/serve.py (`calculate_metrics`), sglang/bench_serving.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.devices.engines.run import ServedRun
from specplan.cost_models.foreign_file import Source
from specplan.cost_models.intervals import HALF_WIDTH_90

_WHOLE = ("e2el", "e2e_latency")
_ACCEPTED = ("spec_decode_acceptance_length", "accept_length")
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
    result = list(source.objects(*_KEYS))[-1]
    requests, duration, prompts, outputs = (source.number(result, name, low=1e-9) for name in _KEYS)
    seconds, deviation = _request_seconds(source, result, outputs / requests)
    accepted = next((result[name] for name in _ACCEPTED if result.get(name) is not None), None)
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
    )


def _request_seconds(
    source: Source, result: Mapping[str, Any], output_tokens: float
) -> tuple[float, float | None]:
    """Mean and standard deviation of the time of a request, seconds."""
    for name in _WHOLE:
        if result.get(f"mean_{name}_ms") is not None:
            mean = source.number(result, f"mean_{name}_ms", low=1e-9)
            return mean / 1e3, _deviation(source, result, name)
    first = source.number(result, "mean_ttft_ms", low=1e-9)
    further = source.number(result, "mean_tpot_ms", low=1e-9)
    return (first + further * (output_tokens - 1.0)) / 1e3, None


def _deviation(source: Source, result: Mapping[str, Any], name: str) -> float | None:
    key = f"std_{name}_ms"
    return None if result.get(key) is None else source.number(result, key) / 1e3
