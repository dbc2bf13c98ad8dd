"""`specplan emit`: the configuration of an engine that serves a plan, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import interval_words, print_json
from specplan.cli.screen.names import plan_name

if TYPE_CHECKING:
    from specplan.backends.engines.report import Choice


@takes_problem("DIR|PROBLEM", "A bundle that `specplan optimize` wrote, or a problem file.")
def emit(
    source: ProblemSource,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME[@VERSION]",
            help="Serving engine; `specplan engines` lists them.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the files.")],
    any_version: Annotated[
        bool,
        typer.Option(
            "--any-version", help="If this version is unknown, write for the newest known one."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the files with which an engine serves a plan, and say what the plan loses there."""
    from specplan.emitting import emit as project
    from specplan.progress import terminal_progress

    replaced = out.is_dir() and any(out.iterdir())
    with terminal_progress() as progress:
        problem = source.problem()
        done = project(problem, engine, out=out, any_version=any_version, progress=progress)
    if json:
        print_json({**done.as_dict(), "folder": str(done.folder), "replaced": replaced})
        return
    print(f"{done.table.title} {done.table.version}: {_name(done.emitted)}")
    if done.ratio is not None:
        print(f"Not the chosen plan ({_name(done.chosen)}):")
        for words in done.refusals:
            print(f"  {words}")
        print(f"Its speed is {interval_words(done.ratio, '.3g')} times that of the chosen plan.")
    if replaced:
        print(f"Replaced: the files of an earlier `specplan emit` in {out}")
    print(f"\n{done.emission.command}\n\nFiles: {out} (start with README.md)")


def _name(choice: Choice) -> str:
    """A plan in the words of a user."""
    return plan_name({"method": choice.method, "words": choice.words})
