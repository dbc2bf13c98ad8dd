"""TensorRT Edge-LLM: options of its export, of `llm_build` and of `llm_inference`.

Both engines are built into one folder. The root is counted among the verified positions. A drafter
of blocks takes one draft step, whatever the block's length. Sampling is read from the requests.
"""

from __future__ import annotations

import shlex
from typing import Any

from specplan.backends.engines.job import Emission, Job, command_line

_EXPORTS = {
    "eagle": ("--eagle-base", "", "llm"),
    "dflash": ("--dflash-base", "--dflash-draft", "dflash_draft"),
    "dspark": ("--dspark-base", "--dspark-draft", "dspark_draft"),
}
"""Options of the exports of target and drafter, and the folder of the drafter's, by its form."""


def project(job: Job) -> Emission:
    """`tensorrt_edge_llm.json`: the options of each program; `requests.json`; the commands."""
    options = _options(job)
    builds = [
        command_line(f"llm_build --onnxDir {folder} --engineDir engines", *_given(given))
        for folder, given in options["llm_build"].items()
    ]
    inference = command_line(
        "llm_inference --engineDir engines --inputFile requests.json --outputFile output.json",
        *_given(options["llm_inference"]),
    )
    return Emission(
        {"tensorrt_edge_llm.json": options, "requests.json": _requests(job)},
        command="\n".join([*_exports(job), *builds, inference]),
        notes=(
            "Export on a host with tensorrt-edgellm-export, build and run on the device; "
            "requests.json asks for one example, put yours in its place.",
        ),
    )


def _given(options: dict[str, Any]) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name} {value}" for name, value in options.items()
    ]


def _exports(job: Job) -> list[str]:
    export, target = "tensorrt-edgellm-export", shlex.quote(job.target)
    if job.drafting.drafter == "none":
        return [f"{export} {target} export"]
    if job.drafting.drafter == "modules":
        return [f"{export} {target} export --mtp"]
    base, drafter, _ = _EXPORTS[job.form]
    draft = shlex.quote(job.draft)
    if not drafter:
        return [f"{export} {target} export {base}", f"{export} {draft} export-draft"]
    read = f"--{job.form}-draft-dir {draft}"
    return [
        f"{export} {target} export {base} {read}",
        f"{export} {target} export-draft {drafter} {read}",
    ]


def _options(job: Job) -> dict[str, Any]:
    drafting = job.drafting
    verified = drafting.tokens + 1
    longest = max((load.prompt_tokens + load.output_tokens for load in job.loads), default=1)
    base: dict[str, Any] = {
        "maxBatchSize": job.most_requests,
        "maxInputLen": max((load.prompt_tokens for load in job.loads), default=1),
        "maxKVCacheCapacity": longest + verified,
    }
    if drafting.drafter == "none":
        return {"llm_build": {"export/llm": base}, "llm_inference": {}}
    block = drafting.drafter == "block"
    folder = "export/mtp_draft"
    if drafting.own_weights:
        folder = f"export-draft/{_EXPORTS[job.form][2]}"
    drafted = drafting.tokens if job.form == "dspark" else verified
    inference: dict[str, Any] = {
        "specDecode": True,
        "specDraftTopK": drafting.widest,
        "specDraftStep": 1 if block else drafting.depth,
        "specVerifySize": verified,
    }
    if job.form == "dflash":
        inference["dflashBlockSize"] = drafting.block + 1
    return {
        "llm_build": {
            "export/llm": base | {"specBase": True, "maxVerifyTreeSize": verified},
            folder: base | {"specDraft": True, "maxDraftTreeSize": drafted},
        },
        "llm_inference": inference,
    }


def _requests(job: Job) -> dict[str, Any]:
    """One example, with the sampling and the length of the plan's workload."""
    greedy = {"temperature": 0.0, "top_k": 1, "top_p": 1.0}
    return {
        "batch_size": job.most_requests,
        **(dict(job.sampling) or greedy),
        "max_generate_length": max((load.output_tokens for load in job.loads), default=1),
        "requests": [{"messages": [{"role": "user", "content": "Once upon a time"}]}],
    }
