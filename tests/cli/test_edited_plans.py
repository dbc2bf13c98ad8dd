"""Plan texts as input: priced and emitted for a problem, bundled, and measured beside plain."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from specplan.backends.bundle import load_bundle
from specplan.cli.main import USAGE
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from tests.cli.test_commands import folder, problem
from tests.cli.test_plan_texts import DRAFTED, PLAIN
from tests.cli.test_problem_flags import FLAGS, record
from tests.cli.test_program import specplan_here

__all__ = ["folder", "record"]
NO_CAPABILITY, INFEASIBLE = 4, 3
LENGTHENED = (
    DRAFTED.replace("pending=2", "pending=4")
    .replace(
        "  %l = forward target %c",
        "  %end = pick %c of=leaves\n  %d = lookup @text %c at=%end match=[1, 3] length=2\n"
        "  %l = forward target %d",
    )
    .replace("accept %c", "accept %d")
)
"""A plan that no method writes: the text goes on where the draft model ends."""


def answer(*arguments: str) -> dict[str, Any]:
    done = specplan_here(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def edited(record: Path) -> Path:
    """The plan of the recorded problem, with one more drafted token."""
    text = answer("optimize", *FLAGS, "--set", "methods=[draft_model]")["plan"]
    loop = re.search(r"repeat (\d+) ", text)
    assert loop
    (record / "edited.txt").write_text(text.replace(loop[0], f"repeat {int(loop[1]) + 1} "))
    return Path("edited.txt")


def test_an_edited_plan_is_priced_by_flags_or_by_a_file(edited: Path) -> None:
    explained = answer("explain", str(edited), *FLAGS)
    assert explained == answer("explain", str(edited), "--problem", "same.yaml")
    assert explained["chosen"]["method"] == "edited_plan" and explained["verdict"] == "speculate"
    ours = answer("explain", "same.yaml")["chosen"]
    families = {(one["method"], one["family"]) for one in explained["runners_up"]}
    assert (ours["method"], ours["family"]) in families  # what is found by itself stands beside it
    screen = specplan_here("explain", str(edited), "--problem", "same.yaml").stdout
    assert 'Your edited plan "draft_model", which specplan did not choose.' in screen
    assert "Its speed over that without speculation" in screen and "--problem same.yaml" in screen


def test_an_unedited_plan_costs_what_it_cost(edited: Path) -> None:
    whole = answer("optimize", *FLAGS)
    edited.write_text(whole["plan"])
    chosen, ours = answer("explain", str(edited), *FLAGS)["chosen"], whole["explanation"]["chosen"]
    assert chosen["by_batch"] == ours["by_batch"] and chosen["speedup"] == ours["speedup"]


def test_an_edited_plan_is_emitted_as_it_is_or_not_at_all(edited: Path) -> None:
    done = answer("emit", str(edited), *FLAGS, "--engine", "vllm", "--out", "files")
    assert done["emitted"]["method"] == "edited_plan" == done["chosen"]["method"]
    assert 'edited plan "draft_model"' in Path("files/README.md").read_text()
    edited.write_text(LENGTHENED)
    refused = specplan_here("emit", str(edited), *FLAGS, "--engine", "vllm", "--out", "more")
    assert refused.returncode == NO_CAPABILITY and "cannot serve the edited plan" in refused.stderr
    assert not Path("more").exists()


def test_a_plan_text_is_bundled_and_measured(folder: Path, tmp_path: Path) -> None:
    """Its own rounds are run for its price, as no profile prices them."""
    (folder / "written.yaml").write_text(yaml.safe_dump(problem(methods=["draft_model"])))
    (tmp_path / "plan.txt").write_text(LENGTHENED)
    text, of = str(tmp_path / "plan.txt"), ("--problem", str(folder / "written.yaml"))
    done = specplan_here("compile", text, *of, "--out", str(tmp_path / "bundle"), "--turns", "1")
    assert done.returncode in (0, NO_CAPABILITY), done.stderr  # no compiler need be installed
    bundle = load_bundle(tmp_path / "bundle")
    assert print_plan(bundle.plan) == print_plan(parse_plan(LENGTHENED))
    chosen = bundle.report["candidates"][bundle.report["chosen"]]
    assert chosen["method"] == "edited_plan" and chosen["drafter"].startswith("rounds(drafted")
    measured = ("--limit", "1", "--repeats", "1", "--no-stock")
    predicted = answer("bench", text, *of, *measured)
    models = [f"--model={name}={folder / name}" for name in ("target", "draft")]
    prompts = ("--prompts", str(folder / "prompts.jsonl"))
    alone = answer("bench", text, *models, *prompts, *measured)
    for result, knows in ((predicted, True), (alone, False)):
        plain, plan = result["lines"]
        assert plain["name"] == "autoregressive" and plan["name"] == "edited_plan: drafted"
        assert plan["differing"] == 0 and (plan["predicted"] is not None) == knows
        assert plan["tokens_per_round"] >= plain["tokens_per_round"]


@pytest.mark.parametrize(
    ("text", "options", "reason", "code"),
    [
        (DRAFTED.replace("draft", "other"), FLAGS, "has no model called other", USAGE),
        (DRAFTED.replace("commit @dkv %e", ""), FLAGS, "commit", USAGE),
        ('plan x\nmodel target digest="0"\n' + PLAIN.split("\n", 2)[2], FLAGS, "not the c", USAGE),
        (LENGTHENED, FLAGS, "does not run the plan", NO_CAPABILITY),
        (LENGTHENED, [*FLAGS, "--backend", "none"], "no acceptance that is known", USAGE),
        (DRAFTED, [*FLAGS, "--set", "limits.memory=10GB"], "memory", INFEASIBLE),
        (DRAFTED, [], "Name one by --problem FILE", USAGE),
    ],
)  # fmt: skip
def test_what_has_no_price_is_stated(
    record: Path, text: str, options: list[str], reason: str, code: int
) -> None:
    Path("plan.txt").write_text(text)
    done = specplan_here("explain", "plan.txt", *options)
    assert (done.returncode, reason in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "explain same.yaml --problem same.yaml",
        "compile . --problem same.yaml",
        "compile plan.txt --problem same.yaml",
        "bench plan.txt",
        "bench plan.txt --model target=target",
        "bench plan.txt --problem same.yaml --kinds",
        "bench plan.txt --problem same.yaml --model target=target",
    ],
)
def test_what_does_not_go_together_is_refused(record: Path, command: str) -> None:
    Path("plan.txt").write_text(PLAIN)
    assert specplan_here(*command.split()).returncode == USAGE
