"""Plan texts by hand: `specplan lint` says what runs them, `specplan run` runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.registry import INTERPRETER, backend_names
from specplan.cli.main import USAGE
from specplan.ir.rules.verify import RULES
from tests.cli.test_program import no_torch, specplan, specplan_here
from tests.ir.plans_on_disk import FOLDER, text_of
from tests.plan_texts import drafted_chain
from tests.planner.checkpoints import write_checkpoint

__all__ = ["no_torch"]
PLAIN, DRAFTED = text_of("autoregressive"), drafted_chain(3)


def linted(path: Path, **environment: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of `specplan lint --json`."""
    done = specplan("lint", str(path), "--json", **environment)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints and two plan texts."""
    write_checkpoint(tmp_path / "target", num_hidden_layers=2)
    write_checkpoint(tmp_path / "draft", seed=1)
    (tmp_path / "plain.txt").write_text(PLAIN)
    (tmp_path / "drafted.txt").write_text(DRAFTED)
    return tmp_path


def test_the_backends_of_a_plan_that_verifies_are_listed(tmp_path: Path, no_torch: str) -> None:
    (tmp_path / "plain.txt").write_text(PLAIN)
    code, answer = linted(tmp_path / "plain.txt", PYTHONPATH=no_torch)
    assert (code, answer["verified"], answer["problems"]) == (0, True, [])
    assert set(answer["backends"]) == {"static", *backend_names()}
    assert all(verdict == {"runs": True, "reason": ""} for verdict in answer["backends"].values())


def test_a_backend_refuses_by_op() -> None:
    """A small cache makes no graph; the interpreter keeps it."""
    code, answer = linted(FOLDER / "self_draft_view.plan")
    assert code == 0 and answer["verified"]
    assert answer["backends"][INTERPRETER] == {"runs": True, "reason": ""}
    static = answer["backends"]["static"]
    assert not static["runs"] and static["reason"].startswith("`")


def test_a_broken_plan_and_a_text_that_is_none(tmp_path: Path) -> None:
    broken, no_plan = tmp_path / "broken.txt", tmp_path / "none.txt"
    broken.write_text(PLAIN.replace("  commit @kv %e\n", ""))
    no_plan.write_text(PLAIN.replace("root", "root ="))
    code, answer = linted(broken)
    assert code == USAGE and not answer["verified"]
    (problem,) = answer["problems"]
    assert problem["rule"] == "commit" and "round decode" in problem["message"]
    assert not any(verdict["runs"] for verdict in answer["backends"].values())
    code, answer = linted(no_plan)
    assert code == USAGE and not answer["verified"]
    (problem,) = answer["problems"]
    assert problem["rule"] == "syntax" not in RULES and "line 5" in problem["message"]


def test_lint_in_words(folder: Path) -> None:
    good = specplan_here("lint", str(folder / "plain.txt"))
    assert good.returncode == 0 and "verifies." in good.stdout and INTERPRETER in good.stdout
    (folder / "broken.txt").write_text(PLAIN.replace("%l\n", "%t\n"))
    bad = specplan_here("lint", str(folder / "broken.txt"))
    assert bad.returncode == USAGE and bad.stdout.startswith("[type] round decode")
    missing = specplan_here("lint", str(folder / "nowhere.txt"))
    assert missing.returncode == USAGE and "cannot read the plan" in missing.stderr


def ran(folder: Path, plan: str, *options: str) -> Any:
    """The one completion of `specplan run --json`."""
    text = ("--prompt", "abcabcabc", "--max-new-tokens", "12", "--json")
    done = specplan_here("run", str(folder / plan), *text, *options)
    assert done.returncode == 0, done.stderr
    (completion,) = json.loads(done.stdout)["completions"]
    return completion


@pytest.mark.parametrize("backend", [INTERPRETER, "static"])
def test_a_plan_text_runs_without_a_bundle(folder: Path, backend: str) -> None:
    models = [f"--model={name}={folder / name}" for name in ("target", "draft")]
    plain = ran(folder, "plain.txt", models[0])
    drafted = ran(folder, "drafted.txt", *models, "--backend", backend)
    assert len(plain["tokens"]) == 12 and drafted["tokens"] == plain["tokens"]
    assert drafted["rounds"] <= plain["rounds"] == 12


def test_a_seed_is_heard(folder: Path) -> None:
    text = PLAIN.replace("accept %t target=%l", "accept %t target=%l rule=naive by=%u")
    text = text.replace("  %a =", "  %u = uniform 1 stream=accept\n  %a =")
    (folder / "drawn.txt").write_text(text)
    models = f"--model=target={folder / 'target'}"
    drawn = [
        ran(folder, "drawn.txt", models, "--temperature", "2", "--seed", seed)["tokens"]
        for seed in ("1", "1", "2")
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("drafted.txt", "--model=target=target"), "no checkpoint is named for draft"),
        (("plain.txt", "--model=target=target", "--model=draft=draft"), "called draft"),
        (("plain.txt", "--model=target=nope"), "nope: there is no such file or folder"),
        (("nope",), "nope: there is no such file or folder"),
        (("plain.txt", "--model=target"), "comes as NAME=DIR"),
        (("plain.txt", "--model=target=target", "--model=target=draft"), "named twice"),
        (("plain.txt", "--model=target=target", "--backend=nobody"), "no backend is called"),
        ((".", "--backend", INTERPRETER), "--backend: a bundle has its own checkpoints"),
        ((".", "--model=target=target"), "--model: a bundle has its own checkpoints"),
        (("none.txt", "--model=target=target"), "none.txt, plan text, line 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_run_is_stated(
    folder: Path, options: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "none.txt").write_text("plan none\nnothing\n")
    monkeypatch.chdir(folder)
    done = specplan_here("run", *options, "--prompt", "abc")
    assert done.returncode == USAGE and reason in done.stderr


def test_an_empty_prompt_is_named(folder: Path) -> None:
    arguments = ("--model", f"target={folder / 'target'}", "--prompt", "")
    done = specplan_here("run", str(folder / "plain.txt"), *arguments)
    assert done.returncode == USAGE and "prompt 1: the prompt is empty" in done.stderr


@pytest.mark.parametrize("command", ["compile", "calibrate", "explain"])
def test_a_plan_text_without_a_problem_asks_for_the_option(folder: Path, command: str) -> None:
    done = specplan_here(command, str(folder / "plain.txt"))
    assert done.returncode == USAGE and "Name one by --problem FILE" in done.stderr


def test_a_plan_runs_on_the_checkpoint_that_it_names(folder: Path) -> None:
    (folder / "other.txt").write_text(PLAIN.replace("target\n", 'target digest="0"\n', 1))
    arguments = ("--model", f"target={folder / 'target'}", "--prompt", "abc")
    done = specplan_here("run", str(folder / "other.txt"), *arguments)
    assert done.returncode == USAGE and "not the one the plan was made for" in done.stderr
