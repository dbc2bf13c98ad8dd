"""`specplan tune`: race the likely plans on real prompts."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.emit import AnyVersion
from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json, print_table
from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.measure.tuning.outcome import Line
    from specplan.measure.tuning.study import Failure
    from specplan.tuning import Tuned


def _option(name: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel="Engine")


Engine = Annotated[
    str | None,
    _option("--engine", "Serve the plans by this engine (`specplan engines`).", "NAME[@VERSION]"),
]
Serve = Annotated[
    str,
    _option(
        "--serve", "Starts the server in $FOLDER; default: as `specplan emit` does.", "COMMAND"
    ),
]
Bench = Annotated[
    str,
    _option(
        "--bench",
        "Measures it at $URL, writes $RESULT; default: the engine's own load generator.",
        "COMMAND",
    ),
]
Stop = Annotated[
    str,
    _option("--stop", "Stops it; default: ends the process that --serve is.", "COMMAND"),
]
Url = Annotated[str, _option("--url", "The server's address; default: its usual port.", "URL")]
Timeout = Annotated[
    float, _option("--timeout", "A start or run that takes longer has failed.", "SECONDS")
]
Prompts = Annotated[
    Path | None,
    _option(
        "--prompts", 'Prompts to send, lines of {"text": ...}; default: the problem\'s.', "FILE"
    ),
]
RetryFailed = Annotated[bool, _option("--retry-failed", "Serve plans again that failed before.")]


Storage = Annotated[
    str | None,
    typer.Option(
        metavar="FILE_OR_URL",
        help="Storage of the trials: a journal file, or a database URL of optuna "
        "(sqlite:///FILE, postgresql://...), which several machines may share.",
    ),
]
Machine = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name of this machine in the study (default: its host name)."
    ),
]


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
        typer.Option(
            "--out", metavar="DIR", help="Write a bundle, or the engine's files, to this folder."
        ),
    ] = None,
    storage: Storage = None,
    machine: Machine = None,
    engine: Engine = None,
    serve: Serve = "",
    bench: Bench = "",
    stop: Stop = "",
    url: Url = "",
    timeout: Timeout = 900.0,
    prompts: Prompts = None,
    retry_failed: RetryFailed = False,
    any_version: AnyVersion = False,
    json: JsonOption = False,
) -> None:
    """Run the likely plans of a problem against each other; continues a stopped run."""
    from specplan.probing.tuning import EngineCommands, tune_engine
    from specplan.progress import terminal_progress
    from specplan.tuning import tune as run

    common: dict[str, Any] = {"minutes": minutes, "out": out, "storage": storage}
    commands = EngineCommands(serve, bench, stop, url.rstrip("/"), timeout)
    with terminal_progress() as progress:
        common |= {"machine": machine, "progress": progress}
        if engine is None:
            if commands != EngineCommands() or prompts or retry_failed or any_version:
                raise UsageError(
                    "some of these options are for tuning on a serving engine only",
                    remedy="Add --engine NAME.",
                )
            done = run(problem.problem(), **common)
        else:
            common |= {"any_version": any_version, "prompts": prompts}
            common |= {"retry_failed": retry_failed}
            done = tune_engine(problem.problem(), engine, commands, **common)
    if done.interrupted:
        print("specplan: interrupted; this is the best plan so far", file=sys.stderr)
    if json:
        print_json(done.as_dict())
        return
    _print(done, out)


def _print(done: Tuned, out: Path | None) -> None:
    """The plan, the table of what ran, what failed, and where the files are."""
    from specplan.ir.text.printer import print_plan

    print(print_plan(done.plan))
    print_table(_COLUMNS, [_row(line) for line in done.lines], title=_title(done))
    for failure in done.failures:
        print(f"Failed: {_name(failure)}: {failure.reason}")
        print(indent(failure.log, "    "))
    print(_verdict(done))
    if done.bundle is not None:
        print(f"\nBundle: {out}")
    if done.folder is not None:
        print(f"\nFiles and logs of every server and run: {done.folder}")
    if done.projection is not None:
        print(f"Files of the plan: {out} (start with README.md)")


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


def _name(plan: Line | Failure) -> str:
    from specplan.planner.answer.names import plan_name

    return plan_name({"method": plan.method, "words": plan.words})


def _row(line: Line) -> tuple[str, ...]:
    state = "leads" if line.leads else "may be faster" if line.alive else ""
    ratio = "1" if line.leads else f"{line.ratio:.3f} +-{line.error:.1%}"
    return (
        f"batch {line.batch}, prompts of {line.prompt_tokens}",
        _name(line),
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
