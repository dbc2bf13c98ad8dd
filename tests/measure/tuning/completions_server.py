"""The program `vllm` in small: a server of completions whose speed is known, and its benchmark.

The server speaks the API of OpenAI (`POST /v1/completions` in a stream of events) and answers
/health and /metrics. A step takes `step(K)` seconds and emits `TOKENS[K]` tokens on average. The
benchmark sends requests over HTTP, measures them by the clock, and writes the JSON of `vllm bench
serve`. Every start and every run adds a line to the file `$LEDGER`; `$DIES`, `$HANGS` and `$BREAKS`
name the K with which the server ends while it starts, never answers, or ends in the third run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

ACCEPTED = 0.6
"""Probability that a draft token is accepted if those before it were."""


def step(draft_tokens: int) -> float:
    """Seconds of a step; more than five tokens take a second tile of the kernel."""
    return 0.001 * (1.0 + 0.2 * draft_tokens + 0.6 * (draft_tokens > 4))


def tokens(draft_tokens: int) -> float:
    """Tokens per step, the bonus included."""
    return sum(ACCEPTED**depth for depth in range(draft_tokens + 1))


def named(variable: str, draft_tokens: int) -> bool:
    """Whether a variable of the environment names this K."""
    return str(draft_tokens) in os.environ.get(variable, "").split()


def note(line: str) -> None:
    """Add a line to the ledger, by one write."""
    with open(os.environ["LEDGER"], "a") as file:
        file.write(f"{line}\n")


def port() -> int:
    return int(os.environ["URL"].rpartition(":")[2])


def serve(draft_tokens: int) -> None:
    """Serve until the process is ended."""
    note(f"start {draft_tokens}")
    print(f"loading with K={draft_tokens}", flush=True)
    if named("DIES", draft_tokens):
        sys.exit("CUDA out of memory: 3 GiB are free")
    if named("HANGS", draft_tokens):
        time.sleep(1000)
    counts = dict.fromkeys(("requests", "outputs", "steps", "accepted"), 0)
    seconds = [0.0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            if self.path == "/metrics":
                self.wfile.write(page(counts, seconds[0], draft_tokens).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/completions" and asked["stream"]
            if named("BREAKS", draft_tokens) and counts["requests"] >= 20:
                print("illegal memory access", flush=True)
                os._exit(134)
            start, emitted, steps = time.perf_counter(), 0, 0
            self.send_response(200)
            self.end_headers()
            while emitted < asked["max_tokens"]:
                steps += 1
                time.sleep(max(start + steps * step(draft_tokens) - time.perf_counter(), 0.0))
                new = min(round(steps * tokens(draft_tokens)), asked["max_tokens"]) - emitted
                emitted += new
                event = {"choices": [{"text": "word " * new, "tokens": new}]}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
            counts["requests"] += 1
            counts["outputs"] += emitted
            counts["steps"] += steps
            counts["accepted"] += emitted - steps
            seconds[0] += time.perf_counter() - start

        def log_message(self, *_: Any) -> None:
            return

    ThreadingHTTPServer(("127.0.0.1", port()), Handler).serve_forever()


def page(counts: dict[str, int], seconds: float, draft_tokens: int) -> str:
    """`/metrics`."""
    rows = {
        "e2e_request_latency_seconds_count": counts["requests"],
        "e2e_request_latency_seconds_sum": seconds,
        "prompt_tokens_total": 100 * counts["requests"],
        "generation_tokens_total": counts["outputs"],
    }
    if draft_tokens:
        rows["spec_decode_num_drafts_total"] = counts["steps"]
        rows["spec_decode_num_accepted_tokens_total"] = counts["accepted"]
    return "".join(f'vllm:{name}{{model_name="m"}} {value}\n' for name, value in rows.items())


def completion(prompt: str, length: int) -> tuple[float, float]:
    """Seconds to the first token and to the last one of a request."""
    connection = HTTPConnection("127.0.0.1", port(), timeout=60)
    start, first, received = time.perf_counter(), 0.0, 0
    body = {"model": "m", "prompt": prompt, "max_tokens": length, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body))
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            first = first or time.perf_counter() - start
            received += json.loads(line[6:])["choices"][0]["tokens"]
    assert received == length
    return first, time.perf_counter() - start


def bench(words: list[str]) -> None:
    """`vllm bench serve`, with the options that specplan gives it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in (
        "base-url", "model", "result-filename", "percentile-metrics", "dataset-name",
        "dataset-path", "temperature",
    ):  # fmt: skip
        parser.add_argument(f"--{name}", required=True)
    for name in ("num-prompts", "max-concurrency", "custom-output-len"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("save-result", "skip-chat-template", "no-oversample"):
        parser.add_argument(f"--{name}", action="store_true", required=True)
    given = parser.parse_args(words)
    prompts = [
        json.loads(line)["prompt"]
        for line in Path(given.dataset_path).read_text().split("\n")
        if line
    ]
    assert len(prompts) == given.num_prompts and given.base_url == os.environ["URL"]
    note(f"run {Path.cwd().parent.name} {Path.cwd().name}")
    length, start = given.custom_output_len, time.perf_counter()
    with ThreadPoolExecutor(given.max_concurrency) as pool:
        times = list(pool.map(lambda prompt: completion(prompt, length), prompts))
    first, whole = zip(*times, strict=True)
    result = {
        "completed": len(prompts), "failed": 0, "duration": time.perf_counter() - start,
        "total_input_tokens": 100 * len(prompts), "total_output_tokens": length * len(prompts),
        "mean_ttft_ms": 1e3 * fmean(first), "mean_e2el_ms": 1e3 * fmean(whole),
        "std_e2el_ms": 1e3 * pstdev(whole),
    }  # fmt: skip
    Path(given.result_filename).write_text(json.dumps(result))


def main(words: list[str]) -> None:
    """`vllm serve MODEL --config FILE`, or `vllm bench serve ...`."""
    if words[0] == "bench":
        bench(words[2:])
        return
    import yaml

    assert words[0] == "serve" and words[2] == "--config"
    settings = yaml.safe_load(Path(words[3]).read_text())
    serve(settings.get("speculative-config", {}).get("num_speculative_tokens", 0))


if __name__ == "__main__":
    main(sys.argv[1:])
