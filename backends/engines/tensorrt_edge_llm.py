"""TensorRT Edge-LLM: options of `llm_build` (for target and drafter) and of `llm_inference`.

The root is counted among the verified positions.
"""

from __future__ import annotations

from typing import Any

from specplan.backends.engines.job import Emission, Job, command_line


def project(job: Job) -> Emission:
    """`tensorrt_edge_llm.json`: the options of each program, and the commands."""
    options = _options(job)
    notes = (f"Export {job.target} to ONNX into onnx/target, and the drafter into onnx/draft.",)
    builds = [
        command_line(f"llm_build --onnxDir onnx/{part} --engineDir engine/{part}", *_given(values))
        for part, values in options["llm_build"].items()
    ]
    inference = command_line("llm_inference --engineDir engine", *_given(options["llm_inference"]))
    return Emission(
        {"tensorrt_edge_llm.json": options},
        command="\n".join([*builds, inference]),
        notes=notes,
    )


def _given(options: dict[str, Any]) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name} {value}" for name, value in options.items()
    ]


def _options(job: Job) -> dict[str, Any]:
    drafting = job.drafting
    base: dict[str, Any] = {"maxBatchSize": job.structure.largest_batch}
    if drafting.drafter == "none":
        return {"llm_build": {"target": base}, "llm_inference": {}}
    verified = drafting.tokens + 1
    return {
        "llm_build": {
            "target": base | {"specBase": True, "maxVerifyTreeSize": verified},
            "draft": base | {"specDraft": True, "maxDraftTreeSize": verified},
        },
        "llm_inference": {
            "specDraftTopK": drafting.widest,
            "specDraftStep": drafting.depth,
            "specVerifyTreeSize": verified,
        },
    }
