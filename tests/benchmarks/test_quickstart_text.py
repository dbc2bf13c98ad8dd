"""What the measure of the quickstart's outputs takes for Python, and for a repetition."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.measure.workbench import chosen_prompts
from specplan.planner import load_problem


@pytest.fixture
def text(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("quickstart_text")


PROMPT = "def f(x):\n    y = x"


@pytest.mark.parametrize(
    ("output", "good"),
    [
        ("\n    return y\n", True),
        ("\n    return y\n    z = (1,", True),  # the last statement is cut off
        ("\n    return y\n    if y:\n        # so\n", True),  # and so is a header without a body
        ("\n    y += 1\n    try:\n        z = 1\n    ", True),  # and a try without a handler
        ("\n    try:\n        z = 1\n    except E:\n        pass\n", True),
        ("\n    return y", False),  # no statement of the output is whole
        ("", False),
        ("\\n    # nothing but words\\n", False),
        ("\n    try:\n        z = 1\n    return y\n", False),
        ("\n    return y y\n    z = 1\n", False),
        ("\n   return y\n", False),  # fits no block
        ("\n    return y)\n    z = 1\n", False),
        ("\n    return y\n    z = $\n    )\n", False),
    ],
)
def test_an_output_parses_up_to_its_last_statement(
    text: ModuleType, output: str, good: bool
) -> None:
    assert text.parses(PROMPT, output) == good


def test_an_output_that_the_target_ends_is_whole(text: ModuleType) -> None:
    assert text.parses(PROMPT, "\n    return y", ended=True)


def test_repeated_grams_are_counted_within_an_output(text: ModuleType) -> None:
    assert text.repeated([[1, 2, 3, 4, 5, 6, 7]]) == 0.0
    assert text.repeated([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1]]) == pytest.approx(2 / 4)
    assert text.repeated([[1, 2, 3]]) == 0.0


def test_heldout_text_follows_the_prompts(text: ModuleType) -> None:
    prompts = chosen_prompts(load_problem(text.PROBLEM), "bench")
    for prompt, rest in zip(prompts, text.heldout(prompts), strict=False):
        assert rest.startswith("\n") and rest.strip(), prompt.id
