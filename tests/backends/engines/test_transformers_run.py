"""The projection onto transformers is really run: its tokens are those of plain greedy decoding."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from specplan.backends.engines.registry import open_table, project
from specplan.backends.engines.writing import check_documents, render
from specplan.ir.plan import Plan
from tests.backends.engines.examples import job, plans, setting

NEW_TOKENS = 48
PROMPTS = ([3, 1, 4, 1, 5, 9, 2, 6], [7] * 12, [10, 11, 12, 13] * 5, [60, 0, 59, 1])
ONE = {
    "plain": plans(1)["plain"],
    "model": plans(1)["model"],
    "text": plans(1)["text"],
    "first_layers": setting("early_exit", "chain of 3 after layer 1", 0.0, 1),
}


def opened(plan: Plan, models: Path, folder: Path) -> Any:
    """The module that was written for a plan of the tiny pair."""
    table = open_table("transformers")
    paths = {name: str(models / name) for name in ("target", "draft")}
    given = replace(job(table, plan), paths=paths, dtype="float64")
    emission = project(table, given)
    check_documents("transformers", emission)
    for name, text in render(emission).items():
        (folder / name).write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("emitted_generate", folder / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plain(pair_folder: Path) -> list[list[int]]:
    """Greedy decoding of every prompt, by the target alone."""
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        str(pair_folder / "target"), dtype="float64"
    )
    texts = []
    for tokens in PROMPTS:
        prompt = torch.tensor([tokens])
        text = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )
        texts.append(text[0, len(tokens) :].tolist())
    return texts


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Tokens of each pass of a three-layer model (the target) after those of the prompts."""
    seen: list[int] = []
    original = transformers.LlamaModel.forward

    def forward(self: Any, input_ids: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self.config.num_hidden_layers == 3 and input_ids is not None:
            seen.append(input_ids.shape[1])
        return original(self, input_ids, *args, **kwargs)

    monkeypatch.setattr(transformers.LlamaModel, "forward", forward)
    yield seen


@pytest.mark.parametrize("name", sorted(ONE))
def test_greedy_tokens_are_those_of_plain_decoding(
    name: str, pair_folder: Path, tmp_path: Path, plain: list[list[int]]
) -> None:
    module = opened(ONE[name], pair_folder, tmp_path)
    target, options = module.open_models()
    for tokens, expected in zip(PROMPTS, plain, strict=True):
        assert module.generate(target, options, tokens, NEW_TOKENS) == expected


@pytest.mark.parametrize(("name", "most"), [("model", 4), ("text", 8), ("first_layers", 3)])
def test_it_drafts_as_many_as_the_plan(
    name: str, most: int, pair_folder: Path, tmp_path: Path, widths: list[int]
) -> None:
    """A threshold or schedule of its own would cut drafts or let them grow."""
    module = opened(ONE[name], pair_folder, tmp_path)
    target, options = module.open_models()
    for tokens in PROMPTS:
        widths.clear()
        module.generate(target, options, tokens, NEW_TOKENS)
        after = widths[1:]
        assert max(after) == most + 1, after
        unbounded = NEW_TOKENS // (most + 1) - 1  # rounds that the limit of tokens cannot cut
        if name != "text":
            assert set(after[:unbounded]) == {most + 1}


def test_the_settings_are_those_of_the_plan(pair_folder: Path, tmp_path: Path) -> None:
    module = opened(ONE["model"], pair_folder, tmp_path)
    written = json.loads((tmp_path / "generate.json").read_text(encoding="utf-8"))
    _, options = module.open_models()
    config = options["assistant_model"].generation_config
    assert config.num_assistant_tokens == written["drafting"]["num_assistant_tokens"] == 4
    assert config.assistant_confidence_threshold == 0.0
    assert config.num_assistant_tokens_schedule == "constant"
