"""Streamed text: flushed step by step, in colour on a terminal, and plain everywhere else."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from specplan.bundles.decoder import PlanDecoder, Settings
from specplan.cli.screen.stream import SHADES, Stream
from specplan.ir.text.parser import parse_plan
from tests.cli.test_plan_texts import DRAFTED
from tests.cli.test_program import specplan_here
from tests.planner.checkpoints import write_checkpoint

PROMPT, STEPS, DRAFT_TOKENS = "abcabcabc", 3, 3
GREEN, BRIGHT, RESET = "\x1b[32m", "\x1b[92m", "\x1b[0m"


class Recorder(io.StringIO):
    """Remembers what was visible at each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def flush(self) -> None:
        self.seen.append(self.getvalue())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target that drafts for itself, so that each of its draft tokens is accepted."""
    folder = tmp_path_factory.mktemp("models")
    write_checkpoint(folder / "target")
    (folder / "drafted.txt").write_text(DRAFTED)
    return dict.fromkeys(("target", "draft"), folder / "target")


def test_a_step_is_flushed_in_the_shade_of_its_draft_tokens(models: dict[str, Path]) -> None:
    decoder, spoken = PlanDecoder(parse_plan(DRAFTED), models), list[tuple[str, ...]]()
    file = Recorder()
    stream = Stream(Console(file=file, force_terminal=True, color_system="standard"))

    def both(row: int, tokens: tuple[int, ...], texts: tuple[str, ...]) -> None:
        spoken.append(texts)
        stream.step(row, tokens, texts)

    stream.begin(PROMPT)
    settings = Settings(max_new_tokens=STEPS * (DRAFT_TOKENS + 1))
    (completion,) = decoder.generate([PROMPT], settings, on_tokens=both).completions
    stream.end()
    assert [len(texts) for texts in spoken] == [DRAFT_TOKENS + 1] * STEPS == [4] * completion.rounds
    assert len(SHADES) == 2
    expected = f"\x1b[2m{PROMPT}{RESET}"
    for colour, texts, seen in zip((GREEN, BRIGHT, GREEN), spoken, file.seen, strict=False):
        expected += f"{colour}{''.join(texts[:-1])}{RESET}{texts[-1]}"
        assert seen == expected
    text, legend, rest = file.getvalue().split("\n")
    assert text == expected and rest == ""
    assert f"{GREEN}draft tokens accepted in one step{RESET}" in legend


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"FORCE_COLOR": "1", "TERM": "xterm"}, True),
        ({"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
        ({"TERM": "xterm"}, False),
    ],
)
def test_colour_is_the_terminals(
    models: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    coloured: bool,
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    plan = models["target"].parent / "drafted.txt"
    options = [f"--model={name}={folder}" for name, folder in models.items()]
    asked = ("run", str(plan), "--prompt", PROMPT, "--max-new-tokens", "12", *options)
    whole, streamed = specplan_here(*asked), specplan_here(*asked, "--stream")
    assert whole.returncode == streamed.returncode == 0, whole.stderr + streamed.stderr
    assert "4.00 tokens per step" in streamed.stderr
    if not coloured:
        assert streamed.stdout == whole.stdout
        return
    bare = re.sub(r"\x1b\[\d+m", "", streamed.stdout)
    assert bare.startswith(PROMPT + whole.stdout) and GREEN in streamed.stdout
