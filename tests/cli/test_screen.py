"""The screen of `optimize` and `explain`: golden texts, its length, its words, and `--show`.

Set SPECPLAN_UPDATE_GOLDEN=1 to write the texts in `screens/` anew, and read the difference.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from rich.text import Text

import specplan
from specplan import api
from specplan.cli.screen.decided import Context
from specplan.cli.screen.show import PIPE_WIDTH, print_parts, screen_parts
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.text.parser import parse_plan
from specplan.planner.answer.names import plan_name, size_name
from specplan.planner.explain.numbers import age_words
from tests.cli.test_program import specplan_here

HERE = Path(__file__).resolve().parent
PLANS = HERE.parents[1] / "examples/ci/plans"
RECORDS = sorted(folder.name for folder in PLANS.iterdir() if folder.is_dir())
NO_ACCEPTANCE = "chat-8b-h100"
"""Also shown as it would be if nobody had measured its drafter."""
CASES = (
    *RECORDS, "undecided", "undecided-grid", "many-batches", "grid", "large-grid", "assumed",
    "no-speculation",
)  # fmt: skip
NEVER = re.compile(r"\b(refused?|priced?|told|law|loads?|chain of \d+)\b", re.IGNORECASE)
LONGEST = 30


def problem(record: str, **changes: Any) -> dict[str, Any]:
    """The problem of a record with absolute paths, and keys changed; None removes one."""
    content = yaml.safe_load((PLANS / record / "problem.yaml").read_text())
    for model in (content["models"]["target"], *content["models"].get("drafts", ())):
        model["path"] = str(PLANS / record / model["path"])
    for drafter, path in content.get("acceptance", {}).items():
        content["acceptance"][drafter] = str(PLANS / record / path)
    content |= changes
    return {key: value for key, value in content.items() if value is not None}


@cache
def answered(case: str) -> specplan.Result:
    """The answer of a case."""
    grid = {"batch_sizes": [1, 8, 32], "prompt_lengths": [256, 1024, 4096], "output_tokens": 256}
    many = {"batch_sizes": list(range(1, 24, 2)), "prompt_tokens": 512, "output_tokens": 256}
    large = {
        "batch_sizes": [2**power for power in range(10)],
        "prompt_lengths": [512 * 2**power for power in range(7)],
        "output_tokens": 256,
    }
    changes: dict[str, dict[str, Any]] = {
        "undecided": {"acceptance": None},
        "undecided-grid": {"acceptance": None, "workload": grid},
        "many-batches": {"workload": many},
        "grid": {"workload": grid},
        "large-grid": {"workload": large},
        "assumed": {"acceptance": {"draft": 0.8}},
        "no-speculation": {"acceptance": {"draft": 0.2}},
    }
    record = case if case in RECORDS else NO_ACCEPTANCE
    return api.optimize(problem(record, **changes.get(case, {})))


@cache
def explained(case: str) -> Mapping[str, Any]:
    """The explanation of a case, as a bundle's report has it."""
    return json.loads(json.dumps(answered(case).explanation()))


def screen(case: str, width: int, *, whole: bool = False, **console: Any) -> str:
    """The screen of a case at a width."""
    output = Console(file=StringIO(), width=width, highlight=False, **console)
    context = Context("problem.yaml", ("specplan explain problem.yaml --show all   (or plan)",))
    print_parts(output, screen_parts(explained(case), output, context, whole=whole))
    text = output.file
    assert isinstance(text, StringIO)
    return text.getvalue()


def without_counts(text: str) -> str:
    """A screen with its counts of kinds as #."""
    return re.sub(r"^(Not tried .*)$", lambda line: re.sub(r"\d+", "#", line[0]), text, flags=re.M)


@pytest.mark.parametrize("width", [80, PIPE_WIDTH, 120])
@pytest.mark.parametrize("case", CASES)
def test_golden_screens(case: str, width: int) -> None:
    """The same in every column; how many kinds were not tried grows with the methods."""
    text, path = screen(case, width), HERE / f"screens/{case}-{width}.txt"
    if os.environ.get("SPECPLAN_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    assert without_counts(text) == without_counts(expected)


@pytest.mark.parametrize("case", CASES)
def test_a_screen_is_short_and_in_the_words_of_users(case: str) -> None:
    text = screen(case, PIPE_WIDTH)
    lines = text.splitlines()
    assert len(lines) <= LONGEST and max(map(len, lines)) <= PIPE_WIDTH
    assert not NEVER.search(text) and "\x1b" not in text and text.isascii()
    assert max(map(len, screen(case, 80).splitlines())) <= 110  # only commands are longer than 80


@pytest.mark.parametrize("case", ["chat-8b-h100", "undecided"])
def test_colour_changes_nothing_but_colour(case: str) -> None:
    coloured = screen(case, 120, force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured
    plain = "".join(f"{Text.from_ansi(line).plain.rstrip()}\n" for line in coloured.splitlines())
    assert plain == screen(case, 120)


def test_the_age_of_measurements_is_by_the_readers_clock(tmp_path: Path) -> None:
    profile = AcceptanceProfile.load(PLANS / NO_ACCEPTANCE / "acceptance/draft.json")
    replace(profile, provenance={"date": "2026-11-22"}).save(tmp_path / "draft.json")
    data = api.optimize(problem(NO_ACCEPTANCE, acceptance={"draft": str(tmp_path / "draft.json")}))
    explanation = json.loads(json.dumps(data.explanation()))
    for today, words in ((date(2026, 11, 25), "3 days ago, 2026-11-22"), (None, "on 2026-11-22")):
        output = Console(file=StringIO(), width=PIPE_WIDTH, highlight=False)
        context = Context("problem.yaml", (), today)
        print_parts(output, screen_parts(explanation, output, context))
        assert isinstance(output.file, StringIO)
        text = output.file.getvalue()
        assert f'acceptance of "draft": given {words}, ' in text
        assert "times: data sheet, h100-sxm@vllm (vLLM 0." in text  # nobody measured it on a day


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0, "today"), (1, "yesterday"), (2, "2 days ago"), (59, "59 days ago"),
        (60, "2 months ago"), (729, "24 months ago"), (730, "2 years ago"),
    ],
)  # fmt: skip
def test_ages_in_words(days: int, words: str) -> None:
    day = date(2026, 11, 25)
    assert (
        age_words((day - timedelta(days)).isoformat(), day) == f"{words}, {day - timedelta(days)}"
    )


def test_all_batch_sizes_are_there_on_demand() -> None:
    short, whole = screen("many-batches", 100), screen("many-batches", 100, whole=True)
    assert "4 more batch sizes: --show all" in short and "more batch sizes" not in whole
    assert all(re.search(rf"^ +{batch}  ", whole, re.MULTILINE) for batch in range(1, 24, 2))


def test_numbers_of_a_point_agree() -> None:
    for case in ("chat-8b-h100", "grid", "tree-7b-a100"):
        for point in explained(case)["points"]:
            gain = point["plain_tpot"]["mean"] / point["tpot"]["mean"]
            assert gain == pytest.approx(point["decode_gain"]["mean"], rel=0.02)
            assert (point["method"] == "autoregressive") == (point["draft_tokens"] == 0)


def test_show_is_what_lies_behind_the_screen() -> None:
    path = str(PLANS / "tree-7b-a100/problem.yaml")
    plan = specplan_here("optimize", path, "--show", "plan").stdout
    assert parse_plan(plan) == parse_plan(specplan_here("explain", path, "--show", "plan").stdout)
    reasons = specplan_here("explain", path, "--show", "not-tried").stdout
    assert reasons.startswith("4 have no acceptance data\n") and "\n  pearl, windows: " in reasons
    entries = explained("tree-7b-a100")["refused"]
    assert sum(line.startswith("  ") for line in reasons.splitlines()) == len(entries)
    whole = specplan_here("optimize", path, "--show", "all").stdout
    assert plan.strip() in whole and whole.count("Use the draft") == 1
    short = specplan_here("optimize", path).stdout
    assert len(short.splitlines()) <= LONGEST and "\x1b" not in short
    both = specplan_here("optimize", path, "--show", "all", "--json")
    assert both.returncode == 2 and "--show and --json cannot be combined" in both.stderr


def test_plans_have_names_that_say_k() -> None:
    def named(method: str, words: str, **options: Any) -> str:
        return plan_name({"method": method, "words": words, "options": options})

    assert named("eagle3", "chain of 6 by eagle", draft="eagle") == 'head "eagle" K=6'
    of_first = {"method": "eagle3", "words": "chain of 6 by e, drawn", "head": "eagle"}
    assert plan_name(of_first) == 'EAGLE-1 head "e" K=6, drawn'
    assert plan_name({**of_first, "head": "eagle3"}) == 'EAGLE-3 head "e" K=6, drawn'
    assert named("prompt_lookup", "up to 14 tokens after a match of 1 to 8") == "prompt lookup K=14"
    assert named("autoregressive", "plain") == "no speculation"
    schedule = "eagle3 chain of 9 by e where batch <= 8; otherwise autoregressive plain"
    assert named("schedule", schedule) == "K by batch size (9, none)"
    tree = {"method": "draft_model", "words": "tree of 6, depth 2, by d", "options": {"draft": "d"}}
    assert size_name(tree) == "tree of 6, depth 2"
