"""TensorRT-LLM: `trtllm-serve TARGET --config tensorrt_llm.yaml` with a `speculative_config`.

Keys: `tensorrt_llm/llmapi/llm_args.py`. `draft_len_schedule` maps the largest batch size of a range
to its draft length; above the last key the length is 0. The first length must be `max_draft_len`.
A drafter with a cache of its own falls behind the text where the length is 0, so that its last key
is the server's largest batch.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from specplan.backends.engines.job import Emission, Forced, Job, benchmark, command_line, in_format

_TYPES = {
    "model": "Draft_Target",
    "pard": "PARD",
    "eagle": "Eagle3",
    "modules": "MTP",
    "dflash": "DFlash",
    "text": "NGram",
    "automaton": "SA",
    "past": "SA",
}
"""Its word for the form of a checkpoint, or for a drafter without one."""
_BENCH = "python -m tensorrt_llm.serve.scripts.benchmark_serving"


def project(job: Job) -> Emission:
    """`tensorrt_llm.yaml`."""
    documents = {"tensorrt_llm.yaml": _settings(job)}
    target = shlex.quote(job.target)
    serve = command_line(f"trtllm-serve {target}", "--config tensorrt_llm.yaml")
    if job.drafting.drafter == "none":
        return Emission(documents, command=serve)
    emission = Emission(documents, command=serve, notes=_notes(job))
    if not job.forces:
        return emission
    environment = {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "{accepted}"}
    command = command_line(
        f"trtllm-serve {in_format(target)}",
        "--config tensorrt_llm.yaml",
        environment=environment,
    )
    return replace(
        emission,
        forced=Forced(
            command,
            benchmark(f"{_BENCH} --model {in_format(target)}", "--random-ids --ignore-eos"),
            "the metric trtllm_spec_decode_acceptance_length",
        ),
    )


def _settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "dtype": job.dtype,
        "max_batch_size": job.most_requests,
    }
    if job.devices > 1:
        settings["tensor_parallel_size"] = job.devices
    if job.step_tokens is not None:
        settings["max_num_tokens"] = job.step_tokens
    if cache := job.cache("target"):
        settings["kv_cache_config"] = {"dtype": cache}
    drafter = job.drafting.drafter
    if drafter == "text":  # the only drafter outside the target's own model
        settings["disable_overlap_scheduler"] = True
    if drafter != "none":
        settings["speculative_config"] = _speculative(job)
    return settings


def _speculative(job: Job) -> dict[str, Any]:
    drafting = job.drafting
    config: dict[str, Any] = {"decoding_type": _TYPES[job.form or drafting.drafter]}
    config["max_draft_len"] = drafting.depth
    if drafting.own_weights:
        config["speculative_model"] = job.draft
    match drafting.drafter:
        case "text":
            config |= {
                "max_matching_ngram_size": drafting.match[1],
                "is_use_oldest": False,
                "is_public_pool": False,
            }
        case "past" | "automaton" as lookup:
            config["max_matching_ngram_size"] = -1
            config["enable_global_pool"] = lookup == "past"
    if drafting.shape == "dynamic tree":
        config |= {
            "use_dynamic_tree": True,
            "dynamic_tree_max_topK": drafting.widest,
            "max_total_draft_tokens": drafting.tokens,
        }
    if job.ranges:
        config["draft_len_schedule"] = {last: tokens for _, last, tokens in job.ranges if tokens}
    return config


def _notes(job: Job) -> tuple[str, ...]:
    if job.drafting.shape != "dynamic tree":
        return ()
    return ("Dynamic trees work neither with sliding windows nor with latent attention.",)
