"""vLLM: `vllm serve TARGET --config vllm.yaml`, with a `speculative-config` inside.

Keys: `vllm/config/speculative.py` and `docs/features/speculative_decoding/`. The parallelism of the
target is never part of the speculative config (`tensor_parallel_size` is rejected there); that of
the drafter is `draft_tensor_parallel_size`, 1 or the target's; a server with a draft model starts
with the target's alone (`vllm/v1/spec_decode/draft_model.py`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specplan.backends.engines.job import Emission, Forced, Job, benchmark, command_line, in_format
from specplan.backends.engines.probe import PROMPTS, Client
from specplan.backends.engines.structure import Drafting

_METHODS = {
    "model": "draft_model",
    "pard": "draft_model",
    "eagle1": "eagle",
    "eagle": "eagle3",
    "p_eagle": "eagle3",
    "dflash": "dflash",
    "dspark": "dspark",
    "modules": "mtp",
    "text": "ngram",
    "past": "suffix",
}
"""Its word for the form of a checkpoint, or for a drafter without one."""
_PARALLEL = ("pard", "p_eagle")


def project(job: Job) -> Emission:
    """`vllm.yaml`, and `forced.yaml` with synthetic acceptance."""
    settings = server_settings(job)
    target = shlex.quote(job.target)
    serve = f"vllm serve {target}"
    if job.drafting.drafter == "none" or not job.loads:
        return Emission({"vllm.yaml": settings}, command=command_line(serve, "--config vllm.yaml"))
    emission = Emission(
        {"vllm.yaml": settings},
        command=command_line(serve, "--config vllm.yaml"),
        notes=tuple(notes(job)),
    )
    if not job.forces:
        return emission
    forced = settings | {"speculative-config": settings["speculative-config"] | _synthetic(job)}
    return replace(
        emission,
        documents={"vllm.yaml": settings, "forced.yaml": forced},
        forced=Forced(
            command_line(in_format(serve), "--config forced.yaml"),
            benchmark(f"vllm bench serve --model {in_format(target)}", "--ignore-eos"),
            "Prometheus: 1 + vllm:spec_decode_num_accepted_tokens_total / "
            "vllm:spec_decode_num_drafts_total",
        ),
    )


def notes(job: Job) -> Iterator[str]:
    """What the user of the settings has to know."""
    if job.drafting.drafter == "past":
        yield "Suffix decoding needs `pip install arctic-inference==0.1.1` beside vLLM."
    if job.ranges:
        yield "The lengths by batch size do not work with data parallelism."


def server_settings(job: Job) -> dict[str, Any]:
    """The server's settings by the names of its options."""
    settings: dict[str, Any] = {"dtype": job.dtype, "max-num-seqs": job.most_requests}
    if job.devices > 1:
        settings["tensor-parallel-size"] = job.devices
    if job.step_tokens is not None:
        settings["max-num-batched-tokens"] = job.step_tokens
    settings |= job.formats("target", "quantization", "kv-cache-dtype")
    if job.drafting.drafter != "none":
        settings["speculative-config"] = _speculative(job)
    settings["override-generation-config"] = dict(job.sampling) or {"temperature": 0.0}
    return settings


def _speculative(job: Job) -> dict[str, Any]:
    drafting = job.drafting
    form = job.form.partition("/")[0]
    config: dict[str, Any] = {"method": _METHODS[form or drafting.drafter]}
    if drafting.own_weights:
        config["model"] = job.draft
        config |= job.formats(drafting.models[0], "quantization", "kv_cache_dtype")
        if job.devices > 1:
            config["draft_tensor_parallel_size"] = job.devices
        if form in _PARALLEL:
            config["parallel_drafting"] = True
    config["num_speculative_tokens"] = drafting.tokens
    if drafting.drafter == "text":
        shortest, longest = drafting.match
        config |= {"prompt_lookup_min": shortest, "prompt_lookup_max": longest}
    if drafting.drafter == "past":
        config |= _suffix(drafting)
    if drafting.drawn:
        config["draft_sample_method"] = "probabilistic"
    if drafting.rule:
        config["rejection_sample_method"] = drafting.rule
    if job.ranges:
        config["num_speculative_tokens_per_batch_size"] = [list(part) for part in job.ranges]
    return config


def _suffix(drafting: Drafting) -> dict[str, Any]:
    """Drafts of the plan's length after every match: its defaults bound them by the match.

    Its trees hold match and draft together, and a draft is at most `max_spec_factor` times as long
    as the match.
    """
    shortest, longest = drafting.match
    return {
        "suffix_decoding_max_tree_depth": longest + drafting.tokens,
        "suffix_decoding_max_spec_factor": float(drafting.tokens) / shortest,
        "suffix_decoding_min_token_prob": 0.0,
    }


def _synthetic(job: Job) -> dict[str, Any]:
    """Accepts as many as are predicted at every length of the schedule, whatever was drafted."""
    rates = [round(rate, 6) for rate in job.acceptance_rates]
    return {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates}


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
