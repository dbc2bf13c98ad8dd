"""Programs in the place of vLLM and SGLang, for the script of a probe on a machine without a GPU.

They take only options of the real programs, and print what these print: names and order of keys are
those of vllm/benchmarks/serve.py (009e6d4a) and sglang/benchmark/serving.py (00f9ec47), of metrics
those of vllm/v1/metrics/loggers.py and sglang/srt/observability/metrics_collector.py. Times follow
from `STEP` and `FIRST`, accepted tokens from `TEXT` and `RANDOM`.
"""

from __future__ import annotations

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

TEXT = (0.77, 0.58, 0.44, 0.33, 0.25)
"""P(the first i draft tokens are all accepted) on text."""
RANDOM = (0.08, 0.02, 0.0, 0.0, 0.0)
SLOWER = 1.25
"""How many times as long a step takes with drafts."""


def step(batch: int, draft_tokens: int) -> float:
    """Seconds."""
    return (0.015 + 0.0001 * batch) * (SLOWER if draft_tokens else 1.0)


def first(batch: int) -> float:
    """Seconds to the first token."""
    return 0.06 * batch**0.8


def length(rates: tuple[float, ...], draft_tokens: int) -> float:
    """Tokens per step, the bonus counted."""
    return 1.0 + sum(rates[:draft_tokens])


class Counters:
    """What a server counts since its start."""

    def __init__(self, engine: str, draft_tokens: int) -> None:
        self.engine, self.draft_tokens = engine, draft_tokens
        self.requests = self.prompts = self.outputs = self.steps = 0
        self.seconds = 0.0
        self.accepted = [0] * draft_tokens

    def add(self, run: dict[str, Any]) -> dict[str, Any]:
        """Serve a run; returns what it adds, and the draft tokens per step."""
        rates = TEXT if run["text"] else RANDOM
        count = run["requests"]
        per_step = length(rates, self.draft_tokens)
        steps = round(count * (run["output_tokens"] - 1) / per_step)
        accepted = [round(steps * rate) for rate in rates[: self.draft_tokens]]
        self.requests += count
        self.prompts += count * run["prompt_tokens"]
        self.outputs += count * run["output_tokens"]
        self.steps += steps
        self.accepted = [a + b for a, b in zip(self.accepted, accepted, strict=True)]
        tpot = step(run["batch"], self.draft_tokens) / per_step
        whole = first(run["batch"]) + tpot * (run["output_tokens"] - 1)
        self.seconds += count * whole
        return {
            "draft_tokens": self.draft_tokens, "steps": steps, "accepted": accepted,
            "tpot": tpot, "whole": whole, "per_step": per_step,
        }  # fmt: skip

    def page(self) -> str:
        """`/metrics`."""
        name, label = self.engine, '{engine="0",model_name="m"}'
        rows = [
            ("e2e_request_latency_seconds_count", self.requests),
            ("e2e_request_latency_seconds_sum", self.seconds),
            ("prompt_tokens_total", self.prompts),
            ("generation_tokens_total", self.outputs),
        ]
        if self.draft_tokens and name == "sglang":
            rows += [("spec_verify_calls_total", self.steps)]
        elif self.draft_tokens:
            rows += [
                ("spec_decode_num_drafts_total", self.steps),
                ("spec_decode_num_draft_tokens_total", self.steps * self.draft_tokens),
                ("spec_decode_num_accepted_tokens_total", sum(self.accepted)),
            ]
        lines = [f"# TYPE {name}:prompt_tokens_total counter"]
        lines += [f"{name}:{row}{label} {float(value)}" for row, value in rows]
        if name == "vllm":
            lines += [
                f"vllm:spec_decode_num_accepted_tokens_per_pos_total"
                f'{{engine="0",model_name="m",position="{position}"}} {float(count)}'
                for position, count in enumerate(self.accepted)
            ]
        return "\n".join(lines) + "\n"


def serve(engine: str, port: int, draft_tokens: int) -> None:
    """A server that answers /health and /metrics, and takes runs at /run."""
    counters = Counters(engine, draft_tokens)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(counters.page() if self.path == "/metrics" else "")

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            self._answer(json.dumps(counters.add(json.loads(self.rfile.read(size)))))

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            return

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


def run_at(url: str, **run: Any) -> dict[str, Any]:
    """Let the server count a run."""
    with urlopen(Request(f"{url}/run", json.dumps(run).encode()), timeout=10) as answer:
        return dict(json.loads(answer.read()))


def figures(name: str, mean: float) -> dict[str, float]:
    """Mean, median and deviation of a time, in milliseconds."""
    mean *= 1e3
    return {f"mean_{name}_ms": mean, f"median_{name}_ms": mean, f"std_{name}_ms": 0.05 * mean}


def vllm(words: list[str]) -> None:
    """`vllm serve MODEL --config FILE`, or `vllm bench serve ...`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    if words[0] == "serve":
        parser.add_argument("model")
        parser.add_argument("--config")
        given = parser.parse_args(words[1:])
        import yaml

        drafts = yaml.safe_load(Path(given.config).read_text()).get("speculative-config", {})
        serve("vllm", port(), drafts.get("num_speculative_tokens", 0))
    assert words[:2] == ["bench", "serve"]
    for name in (
        "base-url", "model", "result-filename", "percentile-metrics", "temperature", "top-p",
        "top-k", "dataset-name", "dataset-path",
    ):  # fmt: skip
        parser.add_argument(f"--{name}")
    for name in (
        "num-prompts", "max-concurrency", "random-input-len", "random-output-len", "seed",
        "hf-output-len", "custom-output-len",
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int)
    for name in ("save-result", "ignore-eos", "skip-chat-template", "no-oversample"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args(words[2:])
    text = given.dataset_name != "random"
    assert not text or given.dataset_name in ("custom", "hf")
    assert given.dataset_name != "custom" or "prompt" in first_line(given.dataset_path)
    output = given.random_output_len or given.hf_output_len or given.custom_output_len
    prompt = 300 if text else given.random_input_len
    batch, count = given.max_concurrency, given.num_prompts
    served = run_at(given.base_url, text=text, requests=count, batch=batch,
                    prompt_tokens=prompt, output_tokens=output)  # fmt: skip
    duration = count * served["whole"] / batch
    result: dict[str, Any] = {
        "date": "20261125-120000", "endpoint_type": "openai", "backend": "openai", "label": None,
        "model_id": given.model, "tokenizer_id": given.model, "num_prompts": count,
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": batch, "duration": duration,
        "completed": count, "failed": 0, "total_input_tokens": count * prompt,
        "total_output_tokens": count * output, "request_throughput": count / duration,
        "request_goodput": None, "output_throughput": count * output / duration,
        "total_token_throughput": count * (prompt + output) / duration,
        "max_output_tokens_per_s": 1.0, "max_concurrent_requests": batch, "rtfx": 0.0,
    }  # fmt: skip
    if served["steps"] and served["draft_tokens"]:
        drafts, accepted = served["steps"], sum(served["accepted"])
        result |= {
            "spec_decode_acceptance_rate": 100 * accepted / drafts / served["draft_tokens"],
            "spec_decode_acceptance_length": 1 + accepted / drafts,
            "spec_decode_num_drafts": drafts,
            "spec_decode_draft_tokens": drafts * served["draft_tokens"],
            "spec_decode_accepted_tokens": accepted,
            "spec_decode_per_position_acceptance_rates": [a / drafts for a in served["accepted"]],
        }
    assert given.percentile_metrics == "ttft,tpot,itl,e2el" and given.save_result
    for name, mean in (
        ("ttft", first(batch)), ("tpot", served["tpot"]),
        ("itl", served["tpot"] * served["per_step"]), ("e2el", served["whole"]),
    ):  # fmt: skip
        result |= figures(name, mean) | {f"p99_{name}_ms": 1.1e3 * mean}
    Path(given.result_filename).write_text(json.dumps(result))


def sglang_server(words: list[str]) -> None:
    """`python -m sglang.launch_server --config FILE --enable-metrics`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config", required=True)
    parser.add_argument("--enable-metrics", action="store_true", required=True)
    given = parser.parse_args(words)
    import yaml

    settings = yaml.safe_load(Path(given.config).read_text())
    serve("sglang", port(), settings.get("speculative-num-steps", 0))


def sglang_bench(words: list[str]) -> None:
    """`python -m sglang.bench_serving ...`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in (
        "base-url", "output-file", "backend", "temperature", "top-p", "extra-request-body",
        "dataset-name", "dataset-path", "random-range-ratio",
    ):  # fmt: skip
        parser.add_argument(f"--{name}")
    for name in (
        "num-prompts", "max-concurrency", "random-input-len", "random-output-len", "seed",
        "sharegpt-output-len",
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int)
    for name in ("flush-cache", "disable-ignore-eos", "tokenize-prompt"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args(words)
    text = given.dataset_name != "random-ids"
    assert not text or given.dataset_name in ("custom", "sharegpt")
    assert given.dataset_name != "custom" or "conversations" in first_line(given.dataset_path)
    assert given.backend == "sglang" or not given.tokenize_prompt
    output = given.sharegpt_output_len if text else given.random_output_len
    prompt = 300 if text else given.random_input_len
    batch, count = given.max_concurrency, given.num_prompts
    served = run_at(given.base_url, text=text, requests=count, batch=batch,
                    prompt_tokens=prompt, output_tokens=output)  # fmt: skip
    duration = count * served["whole"] / batch
    drafts = served["draft_tokens"]
    accepted = served["per_step"] if drafts else None
    info = {
        "speculative_num_steps": drafts or None, "speculative_eagle_topk": 1 if drafts else None,
        "speculative_num_draft_tokens": drafts + 1 if drafts else None,
        "internal_states": [{"avg_spec_accept_length": accepted} if drafts else {}],
    }  # fmt: skip
    result = {
        "tag": None, "backend": given.backend, "dataset_name": given.dataset_name,
        "request_rate": float("inf"), "max_concurrency": batch,
        "sharegpt_output_len": given.sharegpt_output_len,
        "random_input_len": given.random_input_len or 1024,
        "random_output_len": given.random_output_len or 1024, "random_range_ratio": 1.0,
        "server_info": info, "duration": duration, "completed": count,
        "total_input_tokens": count * prompt, "total_output_tokens": count * output,
        "request_throughput": count / duration,
        **figures("e2e_latency", served["whole"]), **figures("ttft", first(batch)),
        **figures("tpot", served["tpot"]), "concurrency": float(batch), "accept_length": accepted,
    }  # fmt: skip
    with Path(given.output_file).open("a") as file:
        file.write(json.dumps(result) + "\n")


def first_line(path: str) -> dict[str, Any]:
    """The first object of a JSON Lines file."""
    return dict(json.loads(Path(path).read_text().splitlines()[0]))


def port() -> int:
    """Where the script of the probe looks for the server."""
    import os

    return int(os.environ["URL"].rpartition(":")[2])


if __name__ == "__main__":
    {"vllm": vllm, "sglang_server": sglang_server, "sglang_bench": sglang_bench}[sys.argv[1]](
        sys.argv[2:]
    )
