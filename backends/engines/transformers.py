"""transformers: `generate()` with its own assisted decoding; `python generate.py PROMPT...`.

How many tokens are drafted is read from the generation config of the model that drafts, not from
what `generate()` is called with; its confidence threshold (0.4 by default) would stop drafts early,
and is the plan's, or 0. The schedule `heuristic_transient` starts each request anew, as the plan.
Where nothing else is said `top_k` is 50.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from specplan.backends.engines.job import Emission, Job, command_line


def project(job: Job) -> Emission:
    """`generate.json`, and `generate.py`, which reads it."""
    source = resources.files("specplan.backends.engines").joinpath("transformers_generate.py.txt")
    return Emission(
        {"generate.json": _settings(job)},
        {"generate.py": source.read_text(encoding="utf-8")},
        command=command_line('python generate.py "Once upon a time"'),
        script="",
    )


def _settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {"target": job.target, "dtype": job.dtype, "generate": {}}
    drafting = job.drafting
    exactly = {
        "num_assistant_tokens": drafting.first or drafting.tokens,
        "num_assistant_tokens_schedule": "heuristic_transient" if drafting.first else "constant",
        "assistant_confidence_threshold": drafting.bar,
    }
    match drafting.drafter:
        case "model":
            settings |= {"assistant": job.draft, "drafting": exactly}
        case "first_layers":
            settings["drafting"] = exactly
            settings["generate"] = {"assistant_early_exit": drafting.exit_layer}
        case "text":
            settings["generate"] = {
                "prompt_lookup_num_tokens": drafting.tokens,
                "max_matching_ngram_size": drafting.match[1],
            }
    settings["generate"] |= {"do_sample": bool(job.sampling), **job.sampling}
    return settings
