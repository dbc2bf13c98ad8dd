"""Runs of serving engines, read from what they and load generators write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specplan.cost_models.devices.engine_runs import read_benchmark, read_served
from specplan.cost_models.foreign_file import Source
from specplan.ir.errors import UsageError

RESULT = {
    "completed": 100,
    "duration": 50.0,
    "total_input_tokens": 4000,
    "total_output_tokens": 3200,
    "mean_ttft_ms": 100.0,
    "mean_tpot_ms": 20.0,
}
SCRAPE = """
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{{le="0.3",model_name="m"}} 1.0
vllm:e2e_request_latency_seconds_count{{model_name="m"}} {requests}
vllm:e2e_request_latency_seconds_sum{{model_name="m"}} {seconds}
vllm:request_queue_time_seconds_sum{{model_name="m"}} {wait}
vllm:prompt_tokens_total{{model_name="m"}} {prompts}
vllm:generation_tokens_total{{model_name="m"}} {outputs}
vllm:spec_decode_num_drafts_total{{model_name="m"}} {drafts}
vllm:spec_decode_num_accepted_tokens_total{{model_name="m"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{model_name="m",position="0"}} 7
"""


def scrape(path: Path, **counts: float) -> Path:
    path.write_text(SCRAPE.format(**counts))
    return path


def test_benchmark(tmp_path: Path) -> None:
    """100 requests of 0.1 + 31 x 0.02 = 0.72 s in 50 s: 1.44 at once, by Little's law."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps(RESULT))
    run = read_served([path])
    assert run.request_seconds == pytest.approx(0.72)
    assert run.seconds_per_token == pytest.approx(0.72 / 32)
    assert (run.prompt_tokens, run.output_tokens, run.requests) == (40, 32, 100)
    assert run.in_flight == pytest.approx(1.44)
    assert run.error is None and run.tokens_per_round is None
    assert read_served([path], batch=2.0).in_flight == 2.0


@pytest.mark.parametrize(
    ("name", "accepted"),
    [("e2el", "spec_decode_acceptance_length"), ("e2e_latency", "accept_length")],
)
def test_whole_requests_and_their_scatter(tmp_path: Path, name: str, accepted: str) -> None:
    """A deviation of 0.2 s over 100 requests: 1.645 x 0.02 s of a mean of 0.8 s."""
    whole = {f"mean_{name}_ms": 800.0, f"std_{name}_ms": 200.0, accepted: 2.5}
    path = tmp_path / "result.jsonl"
    path.write_text(json.dumps({"completed": 1}) + "\n" + json.dumps(RESULT | whole) + "\n")
    run = read_served([path])
    assert run.request_seconds == pytest.approx(0.8)
    assert run.error == pytest.approx(1.6449 * 0.02 / 0.8)
    assert run.tokens_per_round == 2.5


def test_two_scrapes(tmp_path: Path) -> None:
    """Between them: 10 requests in 9 s, 1 s of it in the queue, 250 drafts of which 50 kept."""
    before = scrape(
        tmp_path / "before",
        requests=5, seconds=3, wait=1, prompts=100, outputs=60, drafts=0, accepted=0,
    )  # fmt: skip
    after = scrape(
        tmp_path / "after",
        requests=15, seconds=12, wait=2, prompts=500, outputs=380, drafts=250, accepted=50,
    )  # fmt: skip
    run = read_served([before, after], batch=4)
    assert run.request_seconds == pytest.approx(0.8)
    assert (run.requests, run.prompt_tokens, run.output_tokens) == (10, 40, 32)
    assert run.tokens_per_round == pytest.approx(1.2)
    assert run.in_flight == 4
    alone = read_served([after], batch=4)
    assert alone.request_seconds == pytest.approx(10 / 15)
    with pytest.raises(UsageError, match="ran at once"):
        read_served([before, after])
    with pytest.raises(UsageError, match="nothing that was served"):
        read_served([after, before], batch=4)


def test_verifications_of_sglang(tmp_path: Path) -> None:
    """10 requests of 32 tokens, the first of each by the prefill: 310 by 100 verifications."""
    path = tmp_path / "metrics.txt"
    counts = {
        "prompt_tokens_total": 400,
        "generation_tokens_total": 320,
        "spec_verify_calls_total": 100,
        "spec_verify_calls_total_created": 1.7e9,
        "e2e_request_latency_seconds_sum": 8.0,
        "e2e_request_latency_seconds_count": 10,
    }
    path.write_text("".join(f'sglang:{k}{{model_name="m"}} {v}\n' for k, v in counts.items()))
    assert read_served([path], batch=4).tokens_per_round == pytest.approx(3.1)


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("nothing")
    with pytest.raises(UsageError, match="neither"):
        read_served([path])
    path.write_text(json.dumps(RESULT | {"duration": "soon"}))
    with pytest.raises(UsageError, match="duration is 'soon'"):
        read_served([path])
    path.write_text('{"error": "connection refused"}')
    with pytest.raises(UsageError, match="no object with completed, duration"):
        read_benchmark(Source(path))
    path.write_text("vllm:e2e_request_latency_seconds_sum 3.0\n")
    with pytest.raises(UsageError, match="lacks e2e_request_latency_seconds_count"):
        read_served([path], batch=1)
    with pytest.raises(UsageError, match="cannot read"):
        read_served([tmp_path / "none"])
