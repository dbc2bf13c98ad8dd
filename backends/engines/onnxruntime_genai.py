"""ONNX Runtime GenAI: keys to merge into the `genai_config.json` of an exported model.

`model.draft` is a whole decoder, as the draft's own export describes it; `merge.py` copies it.
`ngram_size` counts the token that follows a match: one more than the tokens that are compared
(docs/SpeculativeDecoding.md; measured for sizes 2 to 4).
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from specplan.backends.engines.job import Emission, Job


def project(job: Job) -> Emission:
    """`genai_config.overlay.json`, and `merge.py`, which merges it."""
    drafting = job.drafting
    overlay: dict[str, Any] = {"search": _search(job)}
    notes = [f"Export {job.target} (python -m onnxruntime_genai.models.builder) into model."]
    if drafting.drafter != "none":
        overlay["speculative"] = {"max_draft_tokens": drafting.tokens, "min_adaptive_k": 0}
    if drafting.drafter == "model":
        overlay["model"] = {"draft": {"filename": "draft/model.onnx"}}
        notes.append(
            f"Export {job.draft} into model/draft, for the same execution providers: a draft on "
            "the CPU beside a target on CUDA is not taken."
        )
    if drafting.drafter == "text":
        overlay["speculative"]["ngram_size"] = drafting.match[0] + 1
    source = resources.files("specplan.backends.engines").joinpath("onnxruntime_merge.py.txt")
    return Emission(
        {"genai_config.overlay.json": overlay},
        {"merge.py": source.read_text(encoding="utf-8")},
        command="python merge.py model",
        script="",
        notes=tuple(notes),
    )


def _search(job: Job) -> dict[str, Any]:
    if not job.sampling:
        return {"do_sample": False}
    return {"do_sample": True, **job.sampling}
