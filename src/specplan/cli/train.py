"""`specplan train`: which drafter is worth training for a problem, and training one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError

FAMILIES = "eagle3, dflash, medusa, eagle or mtp"


class StageName(StrEnum):
    """What is done."""

    PAYS = "pays"
    TRAIN = "train"


@takes_problem()
def train(
    problem: ProblemSource,
    drafter: Annotated[
        list[str] | None,
        typer.Option("--drafter", metavar="FAMILY", help=f"{FAMILIES}; may be repeated."),
    ] = None,
    stage: Annotated[
        StageName,
        typer.Option(
            help="pays: which drafters would pay, before anything is trained. train: train an "
            "EAGLE-3 head or Medusa heads."
        ),
    ] = StageName.PAYS,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder of the head: its config.json, and the checkpoint of its training.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="Prompts to train on, JSON Lines; default the problem's of the split train.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of the whole training.", min=1)] = 1000,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-3,
    loss: Annotated[str, typer.Option(help="ce, kl, rkl, jsd, tv, lk or tvd++.")] = "ce",
    json: JsonOption = False,
) -> None:
    """Say which drafter is worth training: the speedup to expect and its cost. Or train one."""
    if stage is StageName.PAYS:
        _pays(problem, drafter, out, json=json)
        return
    if out is None or drafter is None or len(drafter) != 1:
        raise UsageError(
            "training needs one family and a folder",
            where="--stage train",
            remedy="Write --drafter medusa --out models/medusa",
        )
    more = {"steps": steps, "prompts": prompts, "learning_rate": learning_rate, "loss": loss}
    _train(problem, drafter[0], out, more, json=json)


def _train(
    problem: ProblemSource, family: str, out: Path, more: dict[str, Any], *, json: bool
) -> None:
    """Train a head; `more` are the other arguments of `train_drafter`."""
    from specplan.progress import terminal_progress
    from specplan.training.train import train_drafter

    with terminal_progress() as progress:
        done = train_drafter(problem.problem(), family, out, progress=progress, **more)
    last = done.losses[-1] if done.losses else None
    if json:
        print_json({"out": str(out), "steps": done.steps, "ran": len(done.losses), "loss": last})
        return
    print(f"Head: {out}, {done.steps} steps" + ("" if last is None else f", loss {last:.3f}"))
    print(f"Next: specplan optimize {problem} --draft {family}={out}")


def _pays(
    problem: ProblemSource, drafter: list[str] | None, out: Path | None, *, json: bool
) -> None:
    """Which drafters would pay."""
    from specplan.planner.answer.untrained import table_lines
    from specplan.progress import terminal_progress
    from specplan.training.train import train as run

    with terminal_progress() as progress:
        untrained = run(problem.problem(), drafter=drafter, out=out, progress=progress)
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
