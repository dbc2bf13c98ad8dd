"""`specplan.train`: which drafter is worth training for a problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from specplan.ir.errors import UsageError
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.planner.problem.schema import Problem
    from specplan.planner.training.candidates import Untrained
    from specplan.problems import ProblemLike
    from specplan.training.trainer import Trained

FULL = ("float32", "float64")


def train(
    problem: ProblemLike,
    *,
    drafter: str | Sequence[str] | None = None,
    stage: Literal["pays"] = "pays",
    out: Path | str | None = None,
    progress: Progress = silent,
) -> Untrained:
    """Say which drafters would pay for a problem once they are trained, and what training costs.

    The acceptance of a drafter is taken from published figures of its kind
    (`specplan.cost_models.acceptance.priors`); its plans and their prices are those of `optimize`.
    Nothing is run, unless the problem leaves its device to be measured.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        drafter: a family such as "eagle3", or several; None for all.
        stage: what is done; "pays" is the stage before training. `train_drafter` trains.
        out: write the config.json that training the best of them starts from to this folder.
        progress: called during everything that takes long.

    Raises:
        UsageError: the problem is broken, naming its key; there is no such family; or no candidate
            has a config.json, or `out` has one already.
        MissingCapabilityError: the problem leaves its device to be measured, and that needs an
            extra.
    """
    if stage != "pays":
        raise UsageError(f'there is no stage "{stage}"', where="stage", remedy='Write "pays".')
    from specplan.gathering import gather
    from specplan.planner.training.candidates import untrained_drafters
    from specplan.problems import as_problem, each_backend

    checked = each_backend(as_problem(problem))[0]
    families = [drafter] if isinstance(drafter, str) else drafter
    facts = gather(bare_problem(checked), progress)
    untrained = untrained_drafters(facts, families)
    if out is not None:
        write_config(checked, untrained, Path(out))
    return untrained


def train_drafter(
    problem: ProblemLike,
    drafter: str,
    out: Path | str,
    *,
    steps: int = 1000,
    prompts: Path | str | None = None,
    learning_rate: float = 1e-3,
    loss: str = "ce",
    progress: Progress = silent,
) -> Trained:
    """Train a head on the target's own answers; called again, it goes on where it was.

    The target runs in float32 unless the problem names float64.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        drafter: "eagle3" or "medusa", of the published size unless `out` has a config.json.
        out: folder of the checkpoint, in the form that engines load.
        steps: of the whole training.
        prompts: JSON Lines of prompts to train on; None for those of the problem in the split
            `train`.
        learning_rate: of Adam.
        loss: a name of `specplan.training.losses.LOSSES`.
        progress: called during everything that takes long.

    Raises:
        UsageError: the problem is broken; there are no prompts; or `out` holds something else, or a
            training of something else.
        MissingCapabilityError: running models needs an extra, or the family is not trained here.
        SpecplanError: the loss is no number, or a checkpoint cannot be written.
    """
    from specplan.ir.files import read_json
    from specplan.planner.training.described import published_config
    from specplan.problems import as_problem
    from specplan.runtime import require_torch

    checked, folder = bare_problem(as_problem(problem), prompts=True), Path(out)
    require_torch()
    from specplan.measure.workbench import Workbench
    from specplan.training.losses import LOSSES
    from specplan.training.texts import training_texts
    from specplan.training.trainer import Recipe, train_head

    if loss not in LOSSES:
        raise UsageError(
            f'no loss is called "{loss}"', where="loss", remedy=f"Known: {', '.join(LOSSES)}."
        )
    given = folder / "config.json"
    config = read_json(given) if given.is_file() else published_config(checked, drafter)
    bench = Workbench(checked)
    texts = training_texts(bench, None if prompts is None else Path(prompts), progress)
    recipe = Recipe(
        learning_rate=learning_rate,
        loss=loss,
        temperature=checked.workload.temperature,
        seed=checked.seed,
    )
    return train_head(config, bench.models["target"], texts, steps, folder, recipe, progress)


def bare_problem(problem: Problem, *, prompts: bool = False) -> Problem:
    """The problem without drafters of its own, whose acceptance need not be measured.

    Args:
        problem: a checked problem.
        prompts: keep its prompts, and run its target in a number type that can be trained with.
    """
    target, workload = problem.models.target, problem.workload
    if not prompts:
        workload = workload.model_copy(update={"prompts": None})
    elif target.dtype not in FULL:
        target = target.model_copy(update={"dtype": FULL[0]})
    models = problem.models.model_copy(update={"target": target, "drafts": ()})
    changes = {"models": models, "workload": workload, "sources": (), "methods": None}
    return problem.model_copy(update={**changes, "acceptance": {}})


def write_config(problem: Problem, untrained: Untrained, folder: Path) -> Path:
    """Write the config.json that training the best candidate starts from.

    Returns:
        Its path.

    Raises:
        UsageError: no candidate has one, or the folder has one already.
    """
    from specplan.ir.files import write_json_atomic
    from specplan.planner.training.described import config_of

    path = folder / "config.json"
    if path.exists():
        raise UsageError(
            "the folder has a config.json already", where=str(path), remedy="Name another folder."
        )
    best = next((one for one in untrained.candidates if one.family != "mtp"), None)
    if best is None:
        raise UsageError(
            "no drafter with a config.json would pay here",
            where="out",
            remedy="See `left_out` for the reasons.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    sizes = best.layers, best.width, best.vocabulary
    write_json_atomic(path, config_of(problem, best.family, *sizes))
    return path
