"""Turns of OpenVINO GenAI, for which optimum exports the models; runs in its environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from peer_workers.protocol import Job, Run, Setting, serve

WEIGHTS = {"f32": "fp32", "int8": "int8", "int4": "int4"}


def exported(job: Job, name: str, dtype: str) -> str:
    """A model as optimum writes it."""
    folder: Path = job.work / "openvino_genai" / f"{name}-{dtype}"
    if not (folder / "openvino_model.bin").is_file():
        module = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino"]
        what = ["-m", str(job.work / "hf" / name), "--task", "text-generation-with-past"]
        subprocess.run([*module, *what, "--weight-format", WEIGHTS[dtype], str(folder)], check=True)
    return str(folder)


def prepare(job: Job, setting: Setting) -> Run:
    options: dict[str, Any] = {"INFERENCE_NUM_THREADS": job.threads}
    if setting.dtype == "f32":
        options |= {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos = job.count, True
    config.do_sample, config.apply_chat_template = False, False
    more: dict[str, Any] = {}
    if setting.kind == "lookup":
        more["prompt_lookup"] = True
        config.max_ngram_size = setting.ngram
    elif setting.kind == "draft":
        folder = exported(job, "draft", setting.dtype)
        more["draft_model"] = genai.draft_model(folder, "CPU", **options)
    elif setting.kind != "plain":
        raise ValueError(f"OpenVINO GenAI has no {setting.kind}")
    if more:
        config.num_assistant_tokens = setting.length
    target = exported(job, "target", setting.dtype)
    pipeline = genai.LLMPipeline(target, "CPU", **more, **options)

    def run(prompt: list[int]) -> Iterator[int]:
        ids = np.array([prompt], dtype=np.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        result = pipeline.generate(inputs, config)
        yield from result.tokens[0]

    return run


serve(genai.__version__, prepare)
