"""`specplan tune`: race the likely plans on real prompts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json, print_table

if TYPE_CHECKING:
    from specplan.measure.tuning.outcome import Line
    from specplan.tuning import Tuned


@takes_problem()
def tune(
    problem: ProblemSource,
    minutes: Annotated[
        float,
        typer.Option(
            help="Time budget for runs on this machine, in minutes (cumulative over calls)."
        ),
    ] = 10.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write a bundle to this folder."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="FILE_OR_URL",
            help="Storage of the trials: a journal file, or a database URL of optuna "
            "(sqlite:///FILE, postgresql://...), which several machines may share.",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of this machine in the study (default: its host name)."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run the likely plans of a problem against each other; continues a stopped run."""
    from specplan.ir.text.printer import print_plan
    from specplan.progress import terminal_progress
    from specplan.tuning import tune as run

    with terminal_progress() as progress:
        done = run(
            problem.problem(),
            minutes=minutes,
            out=out,
            storage=storage,
            machine=machine,
            progress=progress,
        )
    if done.interrupted:
        print("specplan: interrupted; this is the best plan so far", file=sys.stderr)
    if json:
        print_json(done.as_dict())
        return
    print(print_plan(done.plan))
    print_table(_COLUMNS, [_row(line) for line in done.lines], title=_title(done))
    print(_verdict(done))
    if done.bundle is not None:
        print(f"\nBundle: {out}")


_COLUMNS = (
    "operating point",
    "decoding",
    ">turns",
    ">tokens/s",
    ">tokens/step",
    ">time over the leader's",
    ">predicted tokens/s",
    "",
)


def _title(done: Tuned) -> str:
    return f"{done.trials} runs, {done.minutes:.1f} minutes on this machine"


def _row(line: Line) -> tuple[str, ...]:
    from specplan.planner.answer.names import plan_name

    state = "leads" if line.leads else "may be faster" if line.alive else ""
    ratio = "1" if line.leads else f"{line.ratio:.3f} +-{line.error:.1%}"
    return (
        f"batch {line.batch}, prompts of {line.prompt_tokens}",
        plan_name({"method": line.method, "words": line.words}),
        str(line.turns),
        f"{line.tokens_per_second:.1f}",
        f"{line.tokens_per_round:.2f}",
        ratio,
        f"{line.predicted:.1f}",
        state,
    )


def _verdict(done: Tuned) -> str:
    from specplan.planner.answer.names import plan_name

    chosen = done.result.search.chosen
    words = f"Chosen: {plan_name(chosen.as_dict())}; "
    if done.decided:
        return words + "no other plan is likely to be faster by more than 1 %."
    rest = len({line.plan for line in done.lines if line.alive and not line.leads})
    return words + (
        f"{rest} others may be faster by more than 1 %: call it again with more --minutes to "
        "continue."
    )
