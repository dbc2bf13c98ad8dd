"""SGLang: `python -m sglang.launch_server --config sglang.yaml`, and adaptive steps beside it.

Of `speculative-num-steps`, `speculative-eagle-topk` and `speculative-num-draft-tokens` all three
are given or none; with one child per node the last is steps + 1, for the root is counted. Trees
(more than one child) want pages of one token with most attention backends. Draft lengths by batch
size are slots of the adaptive file, by the first batch size of each (padded to that of a CUDA
graph); they want one child per node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specplan.backends.engines.job import Emission, Forced, Job, benchmark, command_line
from specplan.backends.engines.probe import PROMPTS, Client

_ALGORITHMS = {
    "model": "STANDALONE",
    "eagle1/sglang": "EAGLE",
    "eagle": "EAGLE3",
    "modules": "NEXTN",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
    "past": "NGRAM",
}
"""Its word for the form of a checkpoint, or for a drafter without one."""
_STEPWISE = ("model", "head", "modules")
_LAUNCH = "python -m sglang.launch_server"


def project(job: Job) -> Emission:
    """`sglang.yaml`, and `adaptive.json` where the draft length goes by the batch."""
    documents: dict[str, Any] = {"sglang.yaml": _settings(job)}
    if job.ranges:
        documents["adaptive.json"] = _adaptive(job)
    command = command_line(_LAUNCH, "--config sglang.yaml")
    if job.drafting.drafter == "none" or not job.loads:
        return Emission(documents, command=command)
    emission = Emission(documents, command=command, notes=_notes(job))
    if not job.forces or job.drafting.widest > 1:
        return emission
    environment = {
        "SGLANG_SIMULATE_ACC_LEN": "{tokens}",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }
    bench = "python -m sglang.benchmark.serving --backend sglang"
    return replace(
        emission,
        forced=Forced(
            command_line(_LAUNCH, "--config sglang.yaml", environment=environment),
            benchmark(bench, "--random-range-ratio 1", dataset="random-ids"),
            "/server_info: internal_states[0].avg_spec_accept_length",
        ),
    )


def _settings(job: Job) -> dict[str, Any]:
    drafting = job.drafting
    settings: dict[str, Any] = {
        "model-path": job.target,
        "dtype": job.dtype,
        "max-running-requests": job.most_requests,
    }
    if job.devices > 1:
        settings["tensor-parallel-size"] = job.devices
    if job.step_tokens is not None:
        settings["chunked-prefill-size"] = job.step_tokens
    settings |= job.formats("target", "quantization", "kv-cache-dtype")
    if drafting.drafter == "none":
        return settings
    settings["speculative-algorithm"] = _ALGORITHMS[job.form or drafting.drafter]
    if drafting.own_weights:
        settings["speculative-draft-model-path"] = job.draft
        settings |= job.formats(
            drafting.models[0],
            "speculative-draft-model-quantization",
            "speculative-draft-kv-cache-dtype",
        )
    if drafting.drafter in _STEPWISE:
        settings |= {
            "speculative-num-steps": drafting.depth,
            "speculative-eagle-topk": drafting.widest,
            "speculative-num-draft-tokens": drafting.tokens + 1,
        }
    elif job.form == "dspark":
        settings["speculative-dspark-block-size"] = drafting.tokens
    elif drafting.drafter == "block":
        settings["speculative-dflash-block-size"] = drafting.tokens + 1
    else:
        settings |= {
            "speculative-num-draft-tokens": drafting.tokens + 1,
            "speculative-ngram-max-bfs-breadth": drafting.widest,
            "speculative-ngram-max-trie-depth": drafting.match[1] + drafting.depth,
        }
    if drafting.rule == "block":
        settings["speculative-use-block-verification"] = True
    if drafting.widest > 1:
        settings["page-size"] = 1
    if job.ranges:
        settings |= {"speculative-adaptive": True, "speculative-adaptive-config": "adaptive.json"}
    return settings


def _adaptive(job: Job) -> dict[str, Any]:
    """One slot for each range, by its first batch size; one candidate: the plan's own length."""
    slots = {str(first): {"candidate_steps": [tokens]} for first, _, tokens in job.ranges}
    return {"update_interval": 1, **slots}


def _notes(job: Job) -> tuple[str, ...]:
    notes = []
    if job.drafting.widest > 1:
        notes.append("Pages hold one token: some attention backends verify trees with no other.")
    if job.drafting.drafter == "model":
        notes.append("Do not add --enable-dp-attention: it does not work with a draft model.")
    if job.drafting.drafter == "past":
        notes.append("Lookup knows no dp-attention, and learns from outputs, not from prompts.")
    return tuple(notes)


def client(job: Job) -> Client:
    """`sglang.bench_serving`; options: `cli_main` of sglang/benchmark/serving.py.

    Top-k is no option there, and a body replaces all sampling parameters but those of the
    OpenAI-compatible address, which takes it at the top level.
    """
    given = {"temperature": 0.0, "top_p": 1.0, "top_k": 0} | dict(job.sampling)
    native = not given["top_k"]
    body = "" if native else f" --extra-request-body '{{{{\"top_k\": {given['top_k']:g}}}}}'"
    bench = command_line(
        'python -m sglang.bench_serving --base-url "$URL" --output-file {result}.jsonl',
        f"--backend {'sglang' if native else 'sglang-oai'} --flush-cache",
        "--num-prompts {requests} --max-concurrency {batch} "
        f"--temperature {given['temperature']:g} --top-p {given['top_p']:g}{body}",
    )
    own = f"--dataset-name custom --dataset-path {PROMPTS}"
    ends = "--sharegpt-output-len {output_tokens} --disable-ignore-eos"
    return Client(
        port=30000,
        flags=" --enable-metrics",
        suffix="jsonl",
        timing=command_line(
            bench,
            "--dataset-name random-ids --random-input-len {prompt_tokens} --random-range-ratio 1",
            "--random-output-len {output_tokens} --seed {seed}"
            + (" --tokenize-prompt" if native else ""),
        ),
        own=command_line(bench, own, ends),
        public=command_line(bench, "--dataset-name sharegpt", ends),
        public_prompts=128,
        public_name="128 prompts of ShareGPT",
    )
