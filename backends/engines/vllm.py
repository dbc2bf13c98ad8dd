"""vLLM: `vllm serve TARGET --config vllm.yaml`, with a `speculative-config` inside.

Keys: `vllm/config/speculative.py` and `docs/features/speculative_decoding/`. The parallelism of the
target is never part of the speculative config (`tensor_parallel_size` is rejected there); that of
the drafter is `draft_tensor_parallel_size`, 1 or the target's.
"""

from __future__ import annotations

import shlex
from typing import Any

from specplan.backends.engines.job import Emission, Forced, Job, benchmark, command_line, in_format
from specplan.backends.engines.probe import PROMPTS, Client

_METHODS = {
    "model": "draft_model",
    "head": "eagle3",
    "modules": "mtp",
    "block": "dflash",
    "text": "ngram",
    "past": "suffix",
}


def project(job: Job) -> Emission:
    """`vllm.yaml`, and `forced.yaml` with synthetic acceptance."""
    settings = server_settings(job)
    target = shlex.quote(job.target)
    serve = f"vllm serve {target}"
    if job.drafting.drafter == "none" or not job.loads:
        return Emission({"vllm.yaml": settings}, command=command_line(serve, "--config vllm.yaml"))
    forced = settings | {"speculative-config": settings["speculative-config"] | _synthetic(job)}
    notes = ("The lengths by batch size do not work with data parallelism.",) if job.ranges else ()
    return Emission(
        {"vllm.yaml": settings, "forced.yaml": forced},
        command=command_line(serve, "--config vllm.yaml"),
        forced=Forced(
            command_line(serve, "--config forced.yaml"),
            benchmark(f"vllm bench serve --model {in_format(target)}", "--ignore-eos"),
            "Prometheus: 1 + vllm:spec_decode_num_accepted_tokens / vllm:spec_decode_num_drafts",
        ),
        notes=notes,
    )


def server_settings(job: Job) -> dict[str, Any]:
    """The server's settings by the names of its options."""
    settings: dict[str, Any] = {"dtype": job.dtype, "max-num-seqs": job.structure.largest_batch}
    if job.devices > 1:
        settings["tensor-parallel-size"] = job.devices
    if job.drafting.drafter != "none":
        settings["speculative-config"] = _speculative(job)
    return settings


def _speculative(job: Job) -> dict[str, Any]:
    drafting = job.drafting
    config: dict[str, Any] = {"method": _METHODS[drafting.drafter]}
    if drafting.own_weights:
        config["model"] = job.draft
        if job.devices > 1:
            config["draft_tensor_parallel_size"] = job.devices
    config["num_speculative_tokens"] = drafting.tokens
    if drafting.drafter == "text":
        shortest, longest = drafting.match
        config |= {"prompt_lookup_min": shortest, "prompt_lookup_max": longest}
    if drafting.drafter == "model" and drafting.drawn:
        config["draft_sample_method"] = "probabilistic"
    if job.ranges:
        config["num_speculative_tokens_per_batch_size"] = [list(part) for part in job.ranges]
    return config


def _synthetic(job: Job) -> dict[str, Any]:
    """Accepts as many as are predicted, whatever was drafted."""
    most = job.drafting.tokens + 1
    length = min(max(job.forced.tokens_per_round.mean, 1.0), float(most))
    return {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": round(length, 3)}


def client(job: Job) -> Client:
    """`vllm bench serve`; options: `add_cli_args` of vllm/benchmarks/serve.py and datasets."""
    given = {"temperature": 0.0} | dict(job.sampling)
    sampling = [f"--{name.replace('_', '-')} {value:g}" for name, value in given.items()]
    bench = command_line(
        f'vllm bench serve --base-url "$URL" --model {in_format(shlex.quote(job.target))}',
        "--save-result --result-filename {result}.json --percentile-metrics ttft,tpot,itl,e2el",
        "--num-prompts {requests} --max-concurrency {batch} " + " ".join(sampling),
    )
    texts = "--dataset-name hf --dataset-path philschmid/mt-bench --hf-output-len {output_tokens}"
    own = f"--dataset-name custom --dataset-path {PROMPTS} --custom-output-len {{output_tokens}}"
    return Client(
        port=8000,
        flags="",
        suffix="json",
        timing=command_line(
            bench,
            "--dataset-name random --random-input-len {prompt_tokens}",
            "--random-output-len {output_tokens} --ignore-eos --seed {seed}",
        ),
        own=command_line(bench, own, "--skip-chat-template --no-oversample"),
        public=command_line(bench, texts),
        public_prompts=80,
        public_name="the 80 first turns of MT-Bench",
    )
