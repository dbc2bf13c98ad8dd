"""The target's own continuations of prompts: the texts on which acceptance is measured.

They are stored in one file that grows batch by batch, so that a run that was killed continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specplan.ir.files import read_json, write_json_atomic
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.device.probes import plain_plan
from specplan.measure.progress import Progress
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request

BATCH = 8
"""Prompts that are continued at once."""


def continue_prompts(
    bench: Workbench, prompts: Sequence[TokenPrompt], progress: Progress, batch: int = BATCH
) -> list[tuple[int, ...]]:
    """The target's own output after each prompt, at the workload's sampling settings.

    A text ends at the workload's output length or at the tokenizer's stop token.

    Args:
        bench: with the target.
        prompts: to continue.
        progress: called after every batch.
        batch: prompts that are continued at once.

    Returns:
        Emitted tokens per prompt, in the order of the prompts.
    """
    workload = bench.problem.workload
    sampling: tuple[Any, ...] = (
        workload.temperature,
        workload.top_k,
        workload.top_p,
        bench.problem.seed,
    )
    if workload.followed_digest:
        sampling += (workload.followed_digest,)
    name = bench.fingerprint(sampling, bench.output_tokens, bench.prompt_tokens, "continuations")
    path = bench.problem.profiles / "continuations" / f"{name}.json"
    known = _read(path)
    todo = [index for index, prompt in enumerate(prompts) if _key(prompt) not in known]
    if not todo:
        return [known[_key(prompt)] for prompt in prompts]
    executable = bench.compile(plain_plan(workload.greedy))
    for start in range(0, len(todo), batch):
        progress("continuations of the target", len(prompts) - len(todo) + start, len(prompts))
        group = todo[start : start + batch]
        output = generate(executable, [request_of(bench, prompts[i], i) for i in group])
        for index, completion in zip(group, output.completions, strict=True):
            known[_key(prompts[index])] = completion.tokens
        write_json_atomic(path, {"schema_version": 1, "tokens": known})
    progress("continuations of the target", len(prompts), len(prompts))
    return [known[_key(prompt)] for prompt in prompts]


def traced_texts(
    bench: Workbench, prompts: Sequence[TokenPrompt], progress: Progress, least: int = 1
) -> list[TracedText]:
    """Prompts with what the target writes after them; shorter outputs than `least` are left out."""
    outputs, target = continue_prompts(bench, prompts, progress), bench.models["target"]
    return [
        TracedText(index, prompt.id, request_of(bench, prompt, index), output, target)
        for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        if len(output) >= least
    ]


def request_of(bench: Workbench, prompt: TokenPrompt, index: int) -> Request:
    """The request for the prompt of an index, at the workload's settings."""
    stops = bench.tokenizer.stop_tokens
    return bench.request(prompt, bench.problem.seed + index, stop_tokens=stops)


def _key(prompt: TokenPrompt) -> str:
    images = () if prompt.images is None else (prompt.images.digest,)
    return " ".join([*map(str, prompt.tokens), *(prompt.followed or ()), *images])


def _read(path: Path) -> dict[str, tuple[int, ...]]:
    if not path.is_file():
        return {}
    document = read_json(path, "stored continuations")
    return {key: tuple(tokens) for key, tokens in document["tokens"].items()}
