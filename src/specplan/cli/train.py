"""`specplan train`: which drafter is worth training for a problem."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json


class StageName(StrEnum):
    """What is done."""

    PAYS = "pays"


@takes_problem()
def train(
    problem: ProblemSource,
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter",
            metavar="FAMILY",
            help="eagle3, dflash, medusa, eagle or mtp; may be repeated.",
        ),
    ] = None,
    stage: Annotated[
        StageName,
        typer.Option(help="pays: which drafters would pay, before anything is trained."),
    ] = StageName.PAYS,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write the config.json that training the best of them starts from.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say which drafter is worth training: the speedup to expect, and what training costs."""
    from specplan.planner.answer.untrained import table_lines
    from specplan.progress import terminal_progress
    from specplan.training.train import train as run

    with terminal_progress() as progress:
        untrained = run(
            problem.problem(), drafter=drafter, stage=stage.value, out=out, progress=progress
        )
    if json:
        print_json(untrained.as_dict())
        return
    print("\n".join(table_lines(untrained)))
    heads = (one for one in untrained.candidates if one.family != "mtp" and one.draft_tokens)
    best = next(heads, None)
    if out is not None:
        print(f"\nconfig.json: {out / 'config.json'}")
        print(f"Next: specplan optimize {problem} --draft {out.name}={out} --acceptance prior")
    elif best is not None:
        name = best.family
        print(f"\nNext: specplan train {problem} --drafter {name} --out models/{name}")
