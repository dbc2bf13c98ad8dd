"""Stock `transformers.generate` as users run it: plain, assisted, with prompt lookup."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from specplan.cost_models.models.model_shape import is_gguf
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.runtime.images.model import ImageModel
from specplan.runtime.models.gguf.model import stock_model

Runner = Callable[[Sequence[TokenPrompt]], list[tuple[int, ...]]]


def stock_runners(bench: Workbench, batch: int, exit_layer: int | None = None) -> dict[str, Runner]:
    """Modes of `transformers.generate` by name; assistance works for single requests only.

    All emit exactly the workload's output tokens and never stop early, as the plans do. With images
    there is the plain one alone: assistants of text are not given the prompt without them.

    Args:
        bench: the models.
        batch: requests decoded together.
        exit_layer: also run a mode in which this many first layers of the target draft.
    """
    problem = bench.problem
    target = _load(problem.models.target.path, bench, "target")
    runners = {"transformers.generate": _runner(bench, target, {})}
    if batch > 1 or isinstance(bench.models["target"], ImageModel):
        return runners
    if problem.models.drafts:
        draft = problem.models.drafts[0]
        assistant = _load(draft.path, bench, draft.name)
        runners[f"transformers.generate, assistant {draft.name}"] = _runner(
            bench, target, {"assistant_model": assistant}
        )
    runners["transformers.generate, prompt lookup"] = _runner(
        bench, target, {"prompt_lookup_num_tokens": 10}
    )
    if exit_layer is not None:
        runners["transformers.generate, early exit"] = _runner(
            bench, target, {"assistant_early_exit": exit_layer}
        )
    return runners


def _load(path: Path, bench: Workbench, role: str) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    if is_gguf(path):
        return stock_model(path, bench.models[role].dtype).eval()
    sees = isinstance(bench.models[role], ImageModel)
    kind: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    model = kind.from_pretrained(
        str(path),
        dtype=bench.models[role].dtype,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    ).eval()
    model.generation_config.eos_token_id = None
    return model


def _runner(bench: Workbench, model: Any, assistance: Mapping[str, Any]) -> Runner:
    from transformers import GenerationConfig

    workload = bench.problem.workload
    options = {name: value for name, value in assistance.items() if name != "assistant_model"}
    if not workload.greedy:
        options |= {"temperature": workload.temperature, "top_p": workload.top_p}
        options["top_k"] = workload.top_k or bench.models["target"].vocab_size
    settings = GenerationConfig(
        do_sample=not workload.greedy,
        max_new_tokens=bench.output_tokens,
        min_new_tokens=bench.output_tokens,
        pad_token_id=0,
        **options,
    )
    assistant = assistance.get("assistant_model")

    @torch.inference_mode()
    def run(prompts: Sequence[TokenPrompt]) -> list[tuple[int, ...]]:
        longest = max(len(prompt.tokens) for prompt in prompts)
        rows = [[0] * (longest - len(p.tokens)) + list(p.tokens) for p in prompts]
        real = [[0] * (longest - len(p.tokens)) + [1] * len(p.tokens) for p in prompts]
        pixels = [prompt.images.pixels.to(model.dtype) for prompt in prompts if prompt.images]
        seen = {"pixel_values": torch.cat(pixels)} if pixels else {}
        with _own_warning_dropped():
            output = model.generate(
                torch.tensor(rows),
                attention_mask=torch.tensor(real),
                generation_config=settings,
                assistant_model=assistant,
                **seen,
            )
        return [tuple(row[longest:]) for row in output.tolist()]

    return run


@contextmanager
def _own_warning_dropped() -> Iterator[None]:
    """Drop a warning of `transformers` 5 about its own calls of the assistant."""
    logger = logging.getLogger("transformers.generation.utils")

    def other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Passing `generation_config` together with")

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)
