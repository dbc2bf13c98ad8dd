"""Turns of ONNX Runtime GenAI, whose builder exports the models; runs in its environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as genai

from peer_workers.protocol import Job, Run, Setting, serve

PRECISIONS = {"f32": "fp32", "int4": "int4"}


def exported(job: Job, name: str, dtype: str) -> Path:
    """A model as the builder writes it."""
    folder = job.work / "onnxruntime_genai" / f"{name}-{dtype}"
    if not (folder / "genai_config.json").is_file():
        module = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        what = ["-m", str(job.work / "hf" / name), "-p", PRECISIONS[dtype], "-e", "cpu"]
        subprocess.run([*module, *what, "-o", str(folder)], check=True)
    return folder


def described(job: Job, setting: Setting) -> Path:
    """The target with the settings merged into its description, and the draft beside it."""
    words = f"{setting.kind}-{setting.dtype}-{setting.length}-{setting.ngram}"
    folder = job.work / "onnxruntime_genai" / words
    shutil.copytree(exported(job, "target", setting.dtype), folder, dirs_exist_ok=True)
    path = folder / "genai_config.json"
    config: dict[str, Any] = json.loads(path.read_text())
    decoder = config["model"]["decoder"]
    decoder["session_options"]["intra_op_num_threads"] = job.threads
    if setting.kind != "plain":
        config["speculative"] = {"max_draft_tokens": setting.length, "min_adaptive_k": 0}
    if setting.kind == "lookup":  # counts the token that follows a match
        config["speculative"]["ngram_size"] = setting.ngram + 1
    if setting.kind == "draft":
        draft = exported(job, "draft", setting.dtype)
        shutil.copytree(draft, folder / "draft", dirs_exist_ok=True)
        own = json.loads((draft / "genai_config.json").read_text())["model"]["decoder"]
        own["session_options"]["intra_op_num_threads"] = job.threads
        config["model"]["draft"] = {**own, "filename": "draft/model.onnx"}
    path.write_text(json.dumps(config))
    return folder


def prepare(job: Job, setting: Setting) -> Run:
    if setting.kind == "tree":
        raise ValueError("ONNX Runtime GenAI has no trees")
    model = genai.Model(str(described(job, setting)))

    def run(prompt: list[int]) -> Iterator[int]:
        size = len(prompt) + job.count
        parameters = genai.GeneratorParams(model)
        parameters.set_search_options(max_length=size, min_length=size, do_sample=False)
        generator = genai.Generator(model, parameters)
        generator.append_tokens(np.array([prompt], dtype=np.int32))
        emitted = len(prompt)
        while not generator.is_done():
            generator.generate_next_token()
            text = generator.get_sequence(0)
            yield from text[emitted:]
            emitted = len(text)

    return run


serve(genai.__version__, prepare)
