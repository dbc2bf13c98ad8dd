"""llama.cpp: `llama-server` with `--spec-*` options.

A drafter over hidden states is converted with `--target-model-dir`. By default a draft ends before
the longest one where the drafter is unsure (`p-min`), which is turned off.
"""

from __future__ import annotations

from specplan.backends.engines.job import Emission, Job, command_line

_TYPES = {
    "model": "draft-simple",
    "head": "draft-eagle3",
    "modules": "draft-mtp",
    "block": "draft-dflash",
    "text": "ngram-simple",
}


def project(job: Job) -> Emission:
    """`llama_cpp.json`: the options of `llama-server`, and the command."""
    options = _options(job)
    notes = [f"Convert {job.target} to GGUF (convert_hf_to_gguf.py) and set TARGET to that file."]
    if job.drafting.own_weights:
        hidden = "" if job.drafting.drafter == "model" else f", --target-model-dir {job.target}"
        notes.append(f"Convert {job.draft} likewise{hidden}; set DRAFT to that file.")
    return Emission(
        {"llama_cpp.json": options},
        command=command_line(
            'llama-server -m "$TARGET"', *(_option(name, value) for name, value in options.items())
        ),
        notes=tuple(notes),
    )


def _option(name: str, value: str | float) -> str:
    return f'--{name} "{value}"' if str(value).startswith("$") else f"--{name} {value}"


def _options(job: Job) -> dict[str, str | float]:
    drafting = job.drafting
    options: dict[str, str | float] = {"parallel": job.structure.largest_batch}
    if drafting.drafter == "none":
        return options
    options["spec-type"] = _TYPES[drafting.drafter]
    if drafting.own_weights:
        options["spec-draft-model"] = "$DRAFT"
    if drafting.drafter == "text":
        return options | {
            "spec-ngram-simple-size-n": drafting.match[1],
            "spec-ngram-simple-size-m": drafting.tokens,
            "spec-ngram-simple-min-hits": 1,
        }
    return options | {"spec-draft-n-max": drafting.tokens, "spec-draft-p-min": 0.0}
