"""OpenVINO GenAI: what `LLMPipeline` is opened with, and its generation config.

A draft model is an object of its own (`openvino_genai.draft_model`), so that `generate.py` opens
the pipeline. A confidence threshold takes the place of the number of drafted tokens.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from specplan.backends.engines.job import Emission, Job, command_line

_DEVICE = "CPU"
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def project(job: Job) -> Emission:
    """`openvino_genai.json`, and `generate.py`, which reads it."""
    drafting = job.drafting
    pipeline: dict[str, Any] = {"models_path": "target", "device": _DEVICE}
    if job.dtype in _PRECISIONS:  # by default keys and values have eight bits
        names = ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION")
        pipeline["properties"] = dict.fromkeys(names, _PRECISIONS[job.dtype])
    if cache := job.cache("target"):
        pipeline["properties"] = {**pipeline.get("properties", {}), "KV_CACHE_PRECISION": cache}
    notes = [f"Export {job.target} (optimum-cli export openvino) into the folder target."]
    if drafting.own_weights:
        pipeline["draft_model"] = {"models_path": "draft", "device": _DEVICE}
        notes.append(f"Export {job.draft} into the folder draft.")
    if drafting.drafter == "text":
        pipeline["prompt_lookup"] = True
    source = resources.files("specplan.backends.engines").joinpath("openvino_generate.py.txt")
    return Emission(
        {"openvino_genai.json": {"pipeline": pipeline, "generation_config": _generation(job)}},
        {"generate.py": source.read_text(encoding="utf-8")},
        command=command_line('python generate.py "Once upon a time"'),
        script="",
        notes=tuple(notes),
    )


def _generation(job: Job) -> dict[str, Any]:
    drafting = job.drafting
    generation: dict[str, Any] = {"do_sample": bool(job.sampling), **_sampled(job)}
    if drafting.drafter == "none":
        return generation
    if drafting.bar:
        return generation | {"assistant_confidence_threshold": drafting.bar}
    generation["num_assistant_tokens"] = drafting.tokens
    if drafting.drafter == "text":
        generation["max_ngram_size"] = drafting.match[1]
    if drafting.shape == "dynamic tree":
        generation |= {"branching_factor": drafting.widest, "tree_depth": drafting.depth}
    return generation


def _sampled(job: Job) -> dict[str, Any]:
    """Its `top_k` has no number that stands for all tokens: the key is left out."""
    return {name: value for name, value in job.sampling.items() if (name, value) != ("top_k", 0)}
