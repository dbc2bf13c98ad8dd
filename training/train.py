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

Stage = Literal["pays"]


def train(
    problem: ProblemLike,
    *,
    drafter: str | Sequence[str] | None = None,
    stage: Stage = "pays",
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
        stage: what is done; "pays" is the stage before training.
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


def bare_problem(problem: Problem) -> Problem:
    """The problem without drafters of its own, whose acceptance need not be measured."""
    models = problem.models.model_copy(update={"drafts": ()})
    workload = problem.workload.model_copy(update={"prompts": None})
    return problem.model_copy(
        update={
            "models": models, "workload": workload, "sources": (), "methods": None,
            "acceptance": {},
        }
    )  # fmt: skip


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
