"""`specplan lint`: whether a plan verifies, and which backends run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from specplan.cli.options import JsonOption, PlanArgument
from specplan.cli.output import print_json, print_table
from specplan.ir.errors import UsageError
from specplan.ir.files import read_text

if TYPE_CHECKING:
    from specplan.ir.capabilities import Capabilities
    from specplan.ir.plan import Plan

SYNTAX = "syntax"
"""The rule that a text which is no plan breaks."""
BROKEN = 2
"""Exit code where a plan does not verify."""


def lint(plan: PlanArgument, json: JsonOption = False) -> None:
    """Verify a plan text, and say which backends run it."""
    document = lint_document(plan)
    if json:
        print_json(document)
    else:
        _print_words(plan, document)
    if not document["verified"]:
        raise typer.Exit(BROKEN)


def lint_document(path: Path) -> dict[str, Any]:
    """What is wrong with a plan text, and what each backend says of it, as JSON data.

    Backends answer by their tables alone: whether one is installed here makes no difference.
    `static` runs plans whose rounds can be made graphs at all.

    Raises:
        UsageError: the file cannot be read.
    """
    from specplan.ir.rules.verify import verify_plan
    from specplan.ir.text.parser import parse_plan

    text, plan = read_text(path, "plan"), None
    try:
        plan = parse_plan(text)
    except UsageError as error:
        problems = [{"rule": SYNTAX, "message": str(error)}]
    else:
        problems = [
            {"rule": broken.rule, "message": f"{broken.where}: {broken.what}"}
            for broken in verify_plan(plan)
        ]
    runnable = None if problems else plan
    backends = {name: _answer(runnable, table) for name, table in _tables().items()}
    return {"verified": not problems, "problems": problems, "backends": backends}


def _tables() -> dict[str, Capabilities]:
    """What each backend can run, by its name."""
    from specplan.backends.registry import backend_capabilities, backend_names
    from specplan.backends.static.graph_capabilities import STATIC

    tables = {name: backend_capabilities(name) for name in backend_names()}
    return dict(sorted({STATIC.backend: STATIC, **tables}.items()))


def _answer(plan: Plan | None, table: Capabilities) -> dict[str, Any]:
    """Whether a backend runs a verified plan (None: it does not verify), and why not."""
    if plan is None:
        return {"runs": False, "reason": "the plan does not verify"}
    refused = table.refusals(plan)
    more = f" ({len(refused) - 1} more)" if len(refused) > 1 else ""
    reason = f"`{refused[0].where}`: {refused[0].reason}{more}" if refused else ""
    return {"runs": not refused, "reason": reason}


def _print_words(path: Path, document: dict[str, Any]) -> None:
    problems = document["problems"]
    if problems:
        for problem in problems:
            print(f"[{problem['rule']}] {problem['message']}")
        print(f"{path} does not verify; docs/plan_language.md explains each rule.")
        return
    print(f"{path} verifies.")
    rows = [
        [name, "yes" if answer["runs"] else "no", answer["reason"]]
        for name, answer in document["backends"].items()
    ]
    print_table(["backend", "runs it", "why not"], rows)
