"""llama.cpp: `llama-server` with `--spec-*` options.

A drafter over hidden states is converted with `--target-model-dir`. One device holds the model
(`--split-mode none`), as the figures have it.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from specplan.backends.engines.job import Emission, Forced, Job, benchmark, command_line, in_format

_TYPES = {
    "model": "draft-simple",
    "eagle": "draft-eagle3",
    "modules": "draft-mtp",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "text": "ngram-simple",
}
"""Its word for the form of a checkpoint, or for a drafter without one."""


def project(job: Job) -> Emission:
    """`llama_cpp.json`: the options of `llama-server`, and the command."""
    options = _options(job)
    notes = [f"Convert {job.target} to GGUF (convert_hf_to_gguf.py) and set TARGET to that file."]
    if job.drafting.own_weights:
        hidden = "" if job.drafting.drafter == "model" else f", --target-model-dir {job.target}"
        notes.append(f"Convert {job.draft} likewise{hidden}; set DRAFT to that file.")
    serve = ['llama-server -m "$TARGET"', *(_option(*option) for option in options.items())]
    emission = Emission(
        {"llama_cpp.json": options}, command=command_line(*serve), notes=tuple(notes)
    )
    if not job.forces:
        return emission
    rates = ",".join(format(rate, ".6f") for rate in job.acceptance_rates)
    bench = f"vllm bench serve --base-url http://127.0.0.1:8080 --model {shlex.quote(job.target)}"
    return replace(
        emission,
        forced=Forced(
            command_line(*serve, f"--spec-synth-rates {rates}"),
            benchmark(in_format(bench), "--ignore-eos"),
            "each answer's timings: 1 + draft_n_accepted / (predicted_n - draft_n_accepted)",
        ),
    )


def _option(name: str, value: str | float) -> str:
    return f'--{name} "{value}"' if str(value).startswith("$") else f"--{name} {value}"


def _options(job: Job) -> dict[str, str | float]:
    drafting = job.drafting
    options: dict[str, str | float] = {"parallel": job.most_requests}
    options |= {"split-mode": "none", **_sampling(job), **_caches(job, "target", "")}
    if drafting.drafter == "none":
        return options
    options["spec-type"] = _TYPES[job.form.partition("/")[0] or drafting.drafter]
    if drafting.own_weights:
        options["spec-draft-model"] = "$DRAFT"
        options |= _caches(job, drafting.models[0], "-draft")
    if drafting.drafter == "text":
        return options | {
            "spec-ngram-simple-size-n": drafting.match[0],
            "spec-ngram-simple-size-m": drafting.tokens,
            "spec-ngram-simple-min-hits": 1,
        }
    return options | {"spec-draft-n-max": drafting.tokens, "spec-draft-p-min": drafting.bar}


def _caches(job: Job, role: str, ending: str) -> dict[str, str]:
    """The number format of a model's keys and values."""
    cache = job.cache(role)
    return {f"cache-type-{part}{ending}": cache for part in "kv"} if cache else {}


def _sampling(job: Job) -> dict[str, float]:
    """Defaults of requests; `min-p` would leave tokens out by itself."""
    if not job.sampling:
        return {"temp": 0.0}
    names = {"temperature": "temp", "top_k": "top-k", "top_p": "top-p"}
    return {names[name]: value for name, value in job.sampling.items()} | {"min-p": 0.0}
