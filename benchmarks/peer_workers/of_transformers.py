"""Turns of `transformers.generate`: plain, assisted and by prompt lookup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers

from peer_workers.protocol import Job, Run, Setting, serve

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def load(job: Job, name: str, dtype: str) -> Any:
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        job.work / "hf" / name, dtype=DTYPES[dtype], local_files_only=True
    )
    model.generation_config.eos_token_id = None
    return model.eval()


def prepare(job: Job, setting: Setting) -> Run:
    torch.set_num_threads(job.threads)
    model = load(job, "target", setting.dtype)
    count = {"max_new_tokens": job.count, "min_new_tokens": job.count}
    options: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, **count}
    if setting.kind == "draft":
        options["assistant_model"] = load(job, "draft", setting.dtype)
    elif setting.kind == "lookup":
        options["prompt_lookup_num_tokens"] = setting.length
        options["max_matching_ngram_size"] = setting.ngram
    elif setting.kind != "plain":
        raise ValueError(f"transformers has no {setting.kind}")

    @torch.inference_mode()
    def run(prompt: list[int]) -> Iterator[int]:
        given = torch.tensor([prompt])
        out = model.generate(given, attention_mask=torch.ones_like(given), **options)
        return iter(out[0, len(prompt) :].tolist())

    return run


serve(transformers.__version__, prepare)
