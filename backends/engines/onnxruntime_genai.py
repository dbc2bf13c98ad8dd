"""ONNX Runtime GenAI: keys to merge into the `genai_config.json` of an exported model."""

from __future__ import annotations

from typing import Any

from specplan.backends.engines.job import Emission, Job


def project(job: Job) -> Emission:
    """`genai_config.overlay.json`."""
    drafting = job.drafting
    overlay: dict[str, Any] = {}
    notes = [f"Export {job.target} and merge genai_config.overlay.json into its genai_config.json."]
    if drafting.drafter != "none":
        overlay["speculative"] = {"max_draft_tokens": drafting.tokens, "min_adaptive_k": 0}
    if drafting.drafter == "model":
        overlay["model"] = {"draft": {"filename": "draft/model.onnx"}}
        notes.append(
            f"Export {job.draft} into the folder draft, for the same execution providers: a draft "
            "on the CPU beside a target on CUDA is not taken."
        )
    if drafting.drafter == "text":
        overlay["speculative"]["ngram_size"] = max(drafting.match[1], 2)
    return Emission(
        {"genai_config.overlay.json": overlay},
        command="# python -m onnxruntime_genai.models.builder ... exports the models",
        script="",
        notes=tuple(notes),
    )
