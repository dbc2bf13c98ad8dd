"""Recorded problems planned again: how a change of specplan changes plans and estimates.

A record is a folder with `problem.yaml`, the files that it names and `answer.json`, the plan and
the estimates at the time of the record (`recording.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from time import perf_counter
from typing import Any

from specplan.checks.findings import Finding, Findings, Metric, Status
from specplan.checks.side import AskedError, Side
from specplan.checks.worker import Answer, answer_of
from specplan.ir.errors import NothingToCompareError, SpecplanError, UsageError
from specplan.ir.files import read_document, write_json_atomic
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.progress import Progress, silent

PROBLEM, ANSWER = "problem.yaml", "answer.json"
SCHEMA_VERSION = 1
MOVED = 1e-3
"""Relative change of an estimate above which it is reported."""


def records(folder: Path) -> list[Path]:
    """The records in a folder, or the folder itself if it is one.

    Raises:
        NothingToCompareError: there is none.
    """
    folders = sorted(path.parent for path in [*folder.glob(PROBLEM), *folder.glob(f"*/{PROBLEM}")])
    if not folders:
        raise NothingToCompareError(
            "there is no recorded problem",
            where=str(folder),
            remedy="Record one with `specplan check record PROBLEM.yaml --out DIR/NAME`.",
        )
    return folders


def check_plans(
    folder: Path,
    *,
    base_python: Path | None = None,
    moved: float = MOVED,
    changes_allowed: bool = False,
    progress: Progress = silent,
) -> Findings:
    """Plan all recorded problems again, and compare.

    Args:
        folder: with records.
        base_python: Python of an environment with another version of specplan to compare with;
            None to compare with the recorded answers.
        moved: largest relative change of an estimate.
        changes_allowed: changed plans and estimates are reported, and are no regression.
        progress: called for every record.

    Raises:
        NothingToCompareError: there is no record.
        UsageError: the other environment cannot be asked, or an answer is broken.
    """
    folders, items = records(folder), []
    with nullcontext() if base_python is None else Side(base_python) as side:
        for index, record in enumerate(folders):
            progress("planning recorded problems", index, len(folders))
            start = perf_counter()
            finding = _check(record, side, moved, changes_allowed)
            items.append(replace(finding, seconds=perf_counter() - start))
    progress("planning recorded problems", len(folders), len(folders))
    return Findings("plans", tuple(items))


def update(folder: Path, progress: Progress = silent) -> list[Path]:
    """Plan all recorded problems and record the answers as correct.

    Raises:
        NothingToCompareError: there is no record.
        SpecplanError: a problem cannot be planned.
    """
    folders = records(folder)
    for index, record in enumerate(folders):
        progress("planning recorded problems", index, len(folders))
        write_answer(record, answer_of(str(record / PROBLEM)))
    progress("planning recorded problems", len(folders), len(folders))
    return folders


def write_answer(record: Path, answer: Answer) -> None:
    """Store the correct answer of a record, the plan line by line for readers."""
    lines = answer | {"plan": answer["plan"].splitlines()}
    write_json_atomic(record / ANSWER, {"schema_version": SCHEMA_VERSION, "answer": lines})


def read_answer(record: Path) -> Answer | None:
    """The recorded answer; None if there is none.

    Raises:
        UsageError: the file is broken or of another version.
    """
    path = record / ANSWER
    if not path.is_file():
        return None
    remedy = "Record it again with `specplan check plans DIR --update`."
    answer: Answer = read_document(path, "recorded answer", SCHEMA_VERSION, remedy)["answer"]
    return answer | {"plan": "".join(f"{line}\n" for line in answer["plan"])}


def difference(base: Answer, head: Answer, moved: float = MOVED) -> str:
    """The differences between two answers as text; empty if there are none above the tolerance.

    Args:
        base: an answer of `worker.answer_of`.
        head: another.
        moved: largest relative change of an estimate.
    """
    plan = unified_diff(
        base["plan"].splitlines(), head["plan"].splitlines(), "base", "head", lineterm=""
    )
    return "\n".join([*plan, *_settings(base["prices"], head["prices"]),
                      *_prices(base["prices"], head["prices"], moved)])  # fmt: skip


def _settings(base: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[str]:
    """Changed best settings as lines of a diff: `-` and `+`, a new method `+` alone."""
    for name in dict.fromkeys([*base, *head]):
        words = [side[name]["words"] if name in side else None for side in (base, head)]
        if words[0] != words[1]:
            yield from (
                f"{sign}{'chosen' if name == 'chosen' else 'best of ' + name}: {word}"
                for sign, word in zip("-+", words, strict=True)
                if word is not None
            )


def _prices(base: Mapping[str, Any], head: Mapping[str, Any], moved: float) -> Iterator[str]:
    """Estimates that changed, one line each: old, new, and the relative change."""
    for name in (name for name in base if name in head):
        if name != "chosen" and all(side[name] == side["chosen"] for side in (base, head)):
            continue  # reported under "chosen"
        for load, old in base[name]["loads"].items():
            new = head[name]["loads"].get(load)
            if new is None:
                yield f"-{name}, {load}: no price any more"
                continue
            for what, value in old.items():
                if abs(new[what] - value) > moved * abs(value):
                    change = new[what] / value - 1.0 if value else float("inf")
                    yield (
                        f"!{name}, {load}, {what}: {value:.6g} -> {new[what]:.6g} ({change:+.2%})"
                    )


def _check(record: Path, side: Side | None, moved: float, changes_allowed: bool) -> Finding:
    """Check one record; a problem that can no longer be planned is a regression."""
    problem, name = str((record / PROBLEM).resolve()), record.name
    try:
        head = answer_of(problem)
    except SpecplanError as error:
        return Finding(name, "regressed", f"cannot be planned: {error}")
    metrics = tuple(
        Metric(f"{load}, seconds per token", price["seconds per token"], "s/token")
        for load, price in head["prices"]["chosen"]["loads"].items()
    )
    try:
        base = read_answer(record) if side is None else side.ask("plan", problem=problem)
    except AskedError as error:
        return Finding(name, "noted", f"the base cannot plan it: {error.what}", metrics=metrics)
    if base is None:
        return Finding(name, "noted", "no answer is recorded yet", metrics=metrics)
    base = base | {"plan": _as_printed_now(base["plan"])}
    changes = difference(base, head, moved)
    data = {"base": base, "head": head}
    if not changes:
        words = f"same plan, prices within {moved:.2%}: {head['prices']['chosen']['words']}"
        return Finding(name, "ok", words, metrics=metrics, data=data)
    harmless = changes_allowed or all(map(_is_addition, changes.splitlines()))
    status: Status = "noted" if harmless else "regressed"
    return Finding(name, status, _summary(base, head, changes), changes, metrics, data=data)


def _as_printed_now(text: str) -> str:
    """Plan text as this version prints it: earlier ones may have other names for attributes."""
    try:
        return print_plan(parse_plan(text))
    except UsageError:  # it uses a removed feature: another plan
        return text


def _is_addition(line: str) -> bool:
    """Whether a line of a difference is the best setting of a new method."""
    return line.startswith("+best of ")


def _summary(base: Answer, head: Answer, changes: str) -> str:
    moved = sum(line.startswith("!") for line in changes.splitlines())
    parts = ["another plan"] if base["plan"] != head["plan"] else []
    parts += [f"{moved} prices moved"] if moved else []
    old, new = (answer["prices"]["chosen"]["words"] for answer in (base, head))
    change = f" ({old} -> {new})" if old != new else f" ({new})"
    return (" and ".join(parts) or "other best settings") + change
