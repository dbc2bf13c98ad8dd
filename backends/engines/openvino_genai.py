"""OpenVINO GenAI: what `LLMPipeline` is opened with, and its generation config."""

from __future__ import annotations

from typing import Any

from specplan.backends.engines.job import Emission, Job


def project(job: Job) -> Emission:
    """`openvino_genai.json`."""
    drafting = job.drafting
    pipeline: dict[str, Any] = {"models_path": "target"}
    generation: dict[str, Any] = {}
    notes = [f"Export {job.target} (optimum-cli export openvino) into the folder target."]
    if drafting.drafter in ("model", "head"):
        pipeline["draft_model"] = "draft"
        notes.append(f"Export {job.draft} into the folder draft.")
    if drafting.drafter != "none":
        generation["num_assistant_tokens"] = drafting.tokens
    if drafting.drafter == "text":
        pipeline["prompt_lookup"] = True
        generation["max_ngram_size"] = drafting.match[1]
    if drafting.shape == "dynamic tree":
        generation |= {"branching_factor": drafting.widest, "tree_depth": drafting.depth}
    return Emission(
        {"openvino_genai.json": {"pipeline": pipeline, "generation_config": generation}},
        command="# openvino_genai.LLMPipeline(**pipeline).generate(prompt, **generation_config)",
        script="",
        notes=tuple(notes),
    )
