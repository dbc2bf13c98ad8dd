"""`specplan optimize`: a problem file in, the fastest plan and why, and a bundle."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.cli.screen.show import Show, ShowOption, check_show, print_screen
from specplan.ir.errors import UndecidedError

if TYPE_CHECKING:
    from specplan.cli.screen.decided import Context
    from specplan.ir.plan import Plan
    from specplan.result import Result


@takes_problem()
def optimize(
    problem: ProblemSource,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write a bundle to this folder."),
    ] = None,
    copy_weights: Annotated[
        bool,
        typer.Option("--copy-weights", help="Copy the weights of its models into the bundle."),
    ] = False,
    show: ShowOption = None,
    json: JsonOption = False,
    print_ir_after_all: Annotated[
        bool,
        typer.Option("--print-ir-after-all", help="Show the plan after each pass that changes it."),
    ] = False,
) -> None:
    """Find the fastest decoding plan of a problem."""
    from specplan import api
    from specplan.ir.text.printer import print_plan
    from specplan.progress import terminal_progress

    check_show(show, json=json)
    with terminal_progress() as progress:
        given = problem.problem()
        result = api.optimize(given, out=out, copy_weights=copy_weights, progress=progress)
    lowered = _lowered(result) if print_ir_after_all else {}
    if json:
        print_json(result.as_dict() | lowered)
    else:
        if lowered and not result.search.undecided:
            print(print_plan(result.plan))
        for step in lowered.get("passes", ()):
            changed = "" if step["plan"] else ": as before"
            print(f"# after {step['pass']}, {step['seconds'] * 1e3:.1f} ms{changed}")
            if step["plan"]:
                print(step["plan"])
        explanation = result.screen() if show is None else result.explanation()
        print_screen(explanation, _context(problem, result, out), result.plan, show)
        if show is Show.ALL:
            _print_untrained(result)
            _print_split(result)
    if result.search.undecided:
        raise typer.Exit(UndecidedError.exit_code)


def _print_untrained(result: Result) -> None:
    """The best drafter that is not trained yet, where it would be faster than what was chosen.

    It takes about as long as the search, so that only the longest answer has it.
    """
    from specplan.planner.answer.untrained import untrained_line
    from specplan.planner.training.candidates import best_untrained

    best = best_untrained(result.search.facts)
    if best is not None and best.gain > result.explanation()["speedup"]["mean"]:
        print(f"\n{untrained_line(best)}   specplan train")


def _print_split(result: Result) -> None:
    """Another split of several devices, where it serves more: plans are for one group of all."""
    from specplan.planner.answer.splits import better_split

    words = better_split(result.problem)
    if words is not None:
        print(f"\n{words}   specplan parallel")


def _context(problem: ProblemSource, result: Result, out: Path | None) -> Context:
    """The problem in words, and the commands that a decision leads to."""
    from specplan.cli.planned import next_steps
    from specplan.cli.screen.decided import Context
    from specplan.problems import compilers_of

    bundle = None if result.bundle is None else out
    compiles = bool(compilers_of(result.problem))
    steps = next_steps(problem, result.problem.all_backends, bundle, compiles=compiles)
    return Context(str(problem), steps, date.today())


def _lowered(result: Result) -> dict[str, Any]:
    """The chosen plan after each pass that changes it."""
    from specplan.ir.text.printer import print_plan
    from specplan.passes.pipeline import run_passes

    steps: list[dict[str, Any]] = []

    def watch(name: str, plan: Plan, changed: bool, seconds: float) -> None:
        text = print_plan(plan) if changed else None
        steps.append({"pass": name, "plan": text, "seconds": seconds})

    run_passes(result.plan, watch=watch)
    return {"passes": steps}
