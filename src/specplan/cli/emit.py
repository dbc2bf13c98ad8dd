"""`specplan emit`: the configuration of an engine that serves a plan, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.cli.planned import ProblemOption
from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.backends.engines.report import Projection

AnyVersion = Annotated[
    bool,
    typer.Option(
        "--any-version", help="If this version is unknown, write for the newest known one."
    ),
]
ProbeOption = Annotated[
    bool,
    typer.Option(
        "--probe", help="Write the commands that measure the engine with and without drafters."
    ),
]
DraftTokens = Annotated[
    int | None, typer.Option(min=1, help="With --probe: draft tokens per step (K); default 5.")
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='With --probe: text to draft on, lines of {"text": ...}; default public prompts.',
    ),
]


@takes_problem(
    "DIR|PROBLEM|PLAN.txt",
    "A bundle that `specplan optimize` wrote, a problem file, or a plan text with its --problem.",
)
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
    problem: ProblemOption = None,
    any_version: AnyVersion = False,
    probe: ProbeOption = False,
    draft_tokens: DraftTokens = None,
    prompts: Prompts = None,
    json: JsonOption = False,
) -> None:
    """Write the files of an engine that serves the plan, and say what the plan loses there.

    With --probe: write the commands that measure the engine, for `specplan import probe`.
    """
    if probe:
        _probe(source, engine, out, any_version, draft_tokens, prompts, json)
        return
    for flag, value in (("--draft-tokens", draft_tokens), ("--prompts", prompts)):
        if value is not None:
            raise UsageError("this option is for a probe only", where=flag, remedy="Add --probe.")
    replaced = out.is_dir() and any(out.iterdir())
    done = _projected(source, problem, engine, out, any_version)
    if json:
        print_json({**done.as_dict(), "folder": str(done.folder), "replaced": replaced})
        return
    chosen, emitted = done.chosen.name, done.emitted.name
    print(f"{done.table.title} {done.table.version}: {emitted}")
    if done.ratio is not None:
        print(f"Not the chosen plan ({chosen}):")
        for words in done.refusals:
            print(f"  {words}")
        print(f"Its speed is {done.ratio.words()} times that of the chosen plan.")
    if replaced:
        print(f"Replaced: the files of an earlier `specplan emit` in {out}")
    print(f"\n{done.emission.command}\n\nFiles: {out} (start with README.md)")


def _projected(
    source: ProblemSource, problem: Path | None, engine: str, out: Path, any_version: bool
) -> Projection:
    from specplan.cli.planned import edited
    from specplan.emitting.projecting import emit as project
    from specplan.emitting.projecting import emit_edited
    from specplan.progress import terminal_progress

    written = edited(source, problem)
    with terminal_progress() as progress:
        if written is None:
            return project(
                source.problem(), engine, out=out, any_version=any_version, progress=progress
            )
        return emit_edited(*written, engine, out=out, any_version=any_version, progress=progress)


def _probe(
    source: ProblemSource,
    engine: str,
    out: Path,
    any_version: bool,
    draft_tokens: int | None,
    prompts: Path | None,
    json: bool,
) -> None:
    from specplan.probing.writing import DRAFT_TOKENS, probe

    done = probe(
        source.problem(),
        engine,
        out=out,
        any_version=any_version,
        draft_tokens=draft_tokens or DRAFT_TOKENS,
        prompts=prompts,
    )
    if json:
        print_json({**done.as_dict(), "folder": str(done.folder)})
        return
    drafters = ", ".join(f"{arm.name} with K={arm.draft_tokens}" for arm in done.arms[1:])
    points = f"{len(done.points)} operating point{'s' * (len(done.points) > 1)}"
    print(f"{done.table.title} {done.table.version}, to be measured at {points}:")
    print(f"no speculation, {drafters}\n")
    print(f"Files: {out} (start with README.md)")
    print(f"Next:  {out}/probe.sh   on the machine that has the device and {done.table.title}")
    print(f"       specplan import probe {out} --out probed")
