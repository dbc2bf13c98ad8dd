"""`specplan train`: which drafter is worth training for a problem, and training one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.cli.train_options import (
    AfterOption,
    AnswersOption,
    DepthPriceOption,
    DrafterOption,
    ExitsName,
    ExitsOption,
    OutOption,
    ParallelOption,
    PolicyOption,
    PromptsOption,
    RowsOption,
    StageName,
    StageOption,
    UnrollOption,
    WarmupOption,
    WorthOption,
)
from specplan.ir.errors import UsageError


@takes_problem()
def train(
    problem: ProblemSource,
    drafter: DrafterOption = None,
    stage: StageOption = StageName.PAYS,
    out: OutOption = None,
    prompts: PromptsOption = None,
    steps: Annotated[int, typer.Option(help="Steps of the whole training.", min=1)] = 1000,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Of Adam. Default: 1e-3; up to 4e-3 for a narrow target, 3e-4 for a draft.",
            show_default=False,
        ),
    ] = None,
    rows: RowsOption = None,
    unroll: UnrollOption = None,
    warmup: WarmupOption = None,
    loss: Annotated[
        str, typer.Option(help="ce, kl, rkl, jsd, tv, lk or tvd++, or a sum: 0.1*ce+1*state.")
    ] = "ce",
    answers: AnswersOption = True,
    on_policy: PolicyOption = None,
    parallel: ParallelOption = None,
    after: AfterOption = None,
    worth: WorthOption = None,
    exits: ExitsOption = None,
    depth_price: DepthPriceOption = None,
    dtype: Annotated[
        str, typer.Option(help="Number type of the published weights: bfloat16 or float32.")
    ] = "bfloat16",
    json: JsonOption = False,
) -> None:
    """Predict which drafter is worth training: its speedup and its cost. Or train one."""
    more: dict[str, Any] = {"steps": steps, "prompts": prompts, "answers": answers, "rows": rows}
    more["learning_rate"] = learning_rate
    if exits is not None or depth_price is not None:
        _exits(problem, exits, out, {**more, "depth_price": depth_price}, json=json)
        return
    if stage is StageName.PAYS:
        _pays(problem, drafter, out, json=json)
        return
    if out is None or not drafter or (len(drafter) != 1 and stage is not StageName.PILOT):
        raise UsageError(
            "training needs one family and a folder",
            where=f"--stage {stage}",
            remedy="Write --drafter medusa --out models/medusa",
        )
    more |= {"unroll": unroll, "warmup": warmup, "loss": loss, "on_policy": on_policy}
    if stage is StageName.VOCABULARY:
        _vocabulary(problem, drafter[0], out, prompts, answers=answers, json=json)
    elif stage is StageName.PILOT:
        _pilot(problem, drafter, out, more, json=json)
    elif stage is StageName.TRAIN:
        more |= {"parallel": parallel, "after": after or (), "worth": worth}
        _train(problem, drafter[0], out, more, json=json)
    else:
        _hand_over(problem, drafter[0], out, dtype, json=json)


def _pilot(
    problem: ProblemSource, families: list[str], out: Path, more: dict[str, Any], *, json: bool
) -> None:
    """Pilots of some families; `more` are the other arguments of `pilot_drafters`."""
    from specplan.planner.answer.pilots import pilot_lines
    from specplan.progress import terminal_progress
    from specplan.training.train import pilot_drafters

    with terminal_progress() as progress:
        pilots = pilot_drafters(problem.problem(), families, out, progress=progress, **more)
    if json:
        print_json({"pilots": [one.as_dict() for one in pilots]})
        return
    print("\n".join(pilot_lines([one.as_dict() for one in pilots])))
    best = pilots[0]
    print(
        f"\nNext: specplan train {problem} --stage train --drafter {best.family} "
        f"--out {best.folder} --steps {best.budget} --worth 0.01"
    )


def _vocabulary(
    problem: ProblemSource,
    family: str,
    out: Path,
    prompts: Path | None,
    *,
    answers: bool,
    json: bool,
) -> None:
    """Sizes of a vocabulary by price."""
    from specplan.progress import terminal_progress
    from specplan.training.train import size_vocabulary

    with terminal_progress() as progress:
        sizes = size_vocabulary(
            problem.problem(), family, out, prompts=prompts, answers=answers, progress=progress
        )
    if json:
        print_json({"out": str(out), "vocabularies": [one.as_dict() for one in sizes]})
        return
    print("  vocabulary  covers of unseen texts  speedup")
    for one in sizes:
        print(f"  {one.tokens:10d}  {one.coverage:22.1%}  {one.gain:6.2f}x")
    print(f"\nconfig.json: {out / 'config.json'}, {sizes[0].tokens} tokens")
    print(f"Next: specplan train {problem} --stage train --drafter {family} --out {out}")


def _hand_over(
    problem: ProblemSource, family: str, out: Path, number_type: str, *, json: bool
) -> None:
    """Publish a drafter."""
    from specplan.progress import terminal_progress
    from specplan.training.train import hand_over_drafter

    with terminal_progress() as progress:
        done = hand_over_drafter(
            problem.problem(), family, out, number_type=number_type, progress=progress
        )
    if json:
        print_json({"out": str(done.folder), "prompts": done.prompts, "rounds": done.rounds})
        return
    print(
        f"{done.folder}: on {done.prompts} prompts {done.rounds} rounds accept as many draft "
        "tokens served as in training"
    )
    print(f"Next: specplan optimize {problem} --draft {family}={done.folder}")


def _train(
    problem: ProblemSource, family: str, out: Path, more: dict[str, Any], *, json: bool
) -> None:
    """Train a drafter; `more` are the other arguments of `train_drafter`."""
    from specplan.progress import terminal_progress
    from specplan.training.train import train_drafter

    with terminal_progress() as progress:
        done = train_drafter(problem.problem(), family, out, progress=progress, **more)
    last = done.losses[-1] if done.losses else None
    if json:
        verdicts = [dict(one) for one in done.verdicts]
        ran = {"steps": done.steps, "ran": len(done.losses), "loss": last, "verdicts": verdicts}
        print_json({"out": str(out), **ran})
        return
    print(f"Drafter: {out}, {done.steps} steps" + ("" if last is None else f", loss {last:.3f}"))
    if done.verdicts and done.verdicts[-1]["stop"]:
        end = done.verdicts[-1]
        print(
            f"Ended early: after step {end['steps']} the next interval was expected to speed "
            f"decoding up by {end['gain']:.2%}, and had to by {end['price']:.2%}"
        )
    print(f"Next: specplan train {problem} --stage hand-over --drafter {family} --out {out}")


def _exits(
    problem: ProblemSource,
    kind: ExitsName | None,
    out: Path | None,
    more: dict[str, Any],
    *,
    json: bool,
) -> None:
    """Train exits; `more` are the other arguments of `train_exits`."""
    if kind is None or out is None:
        raise UsageError(
            "training exits needs --exits KIND and --out",
            where="--exits",
            remedy="Write --exits classifier --out models/exits",
        )
    from specplan.progress import terminal_progress
    from specplan.training.exits import train_exits

    with terminal_progress() as progress:
        done = train_exits(problem.problem(), kind.value, out, progress=progress, **more)
    last = done.losses[-1] if done.losses else None
    if json:
        print_json({"out": str(out), "steps": done.steps, "ran": len(done.losses), "loss": last})
        return
    print(f"Exits: {out}, {done.steps} steps" + ("" if last is None else f", loss {last:.3f}"))
    print(f"Name them as `exit_{kind.value}` in the problem")


def _pays(
    problem: ProblemSource, drafter: list[str] | None, out: Path | None, *, json: bool
) -> None:
    """Which drafters would pay."""
    from specplan.planner.answer.untrained import table_lines
    from specplan.planner.problem.checks import draft_name
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
        draft = shlex.quote(f"{draft_name(out)}={out}")
        print(f"Next: specplan optimize {problem} --draft {draft} --acceptance prior")
    elif best is not None:
        name = best.family
        print(f"\nNext: specplan train {problem} --drafter {name} --out models/{name}")
