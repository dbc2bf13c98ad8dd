"""What the stages of `specplan train` share: a problem, its target and the texts to learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.ir.errors import UsageError
from specplan.progress import Progress

if TYPE_CHECKING:
    from specplan.measure.workbench import Workbench
    from specplan.planner.problem.schema import Problem
    from specplan.planner.training.stopping import Speed
    from specplan.problems import ProblemLike
    from specplan.training.evaluating import HeldOut
    from specplan.training.learning.packing import Text
    from specplan.training.recipe import Recipe
    from specplan.training.trainer import Trained

FULL = ("float32", "float64")
EVALUATIONS = 20
"""Of a training that may end early, over its steps."""


@dataclass
class Session:
    """What trainings of one problem share."""

    problem: Problem
    bench: Workbench
    texts: Sequence[Text]
    recipe: Recipe
    progress: Progress

    @classmethod
    def of(
        cls,
        problem: ProblemLike,
        drafters: Sequence[str],
        prompts: Path | str | None,
        progress: Progress,
        **more: Any,
    ) -> Session:
        """Read the problem, and let its target answer the prompts; `more` as of `Recipe`.

        Raises:
            UsageError: what a family, the loss or the prompts lack, before anything is decoded.
        """
        from specplan.planner.training.described import published_config
        from specplan.problems import as_problem
        from specplan.runtime import require_torch

        checked = bare_problem(as_problem(problem), prompts=True)
        require_torch()
        from specplan.measure.workbench import Workbench
        from specplan.training.losses import LOSSES
        from specplan.training.recipe import Recipe
        from specplan.training.texts import training_texts

        if more["loss"] not in LOSSES:
            raise UsageError(
                f'no loss is called "{more["loss"]}"',
                where="loss",
                remedy=f"Known: {', '.join(LOSSES)}.",
            )
        for family in drafters:
            published_config(checked, family)
        bench = Workbench(checked)
        file = None if prompts is None else Path(prompts)
        texts = training_texts(bench, file, progress, more["answers"])
        recipe = Recipe(temperature=checked.workload.temperature, seed=checked.seed, **more)
        return cls(checked, bench, texts, recipe, progress)

    def train(self, family: str, folder: Path, steps: int, **more: Any) -> Trained:
        """A training of its own; `more` as of `train_head`."""
        from specplan.ir.files import read_json
        from specplan.planner.training.described import published_config
        from specplan.training.trainer import train_head

        given = folder / "config.json"
        config = read_json(given) if given.is_file() else published_config(self.problem, family)
        target = self.bench.models["target"]
        return train_head(
            config, target, self.texts, steps, folder, self.recipe, self.progress, **more
        )

    def judge(
        self, family: str, folder: Path, steps: int, worth: float, points: Sequence[int] = ()
    ) -> HeldOut:
        """Evaluates a training at some points, or at every twentieth part of the steps."""
        from specplan.planner.training.stopping import StopRule
        from specplan.training.evaluating import HeldOut, unseen_texts

        rule = StopRule(steps, max(1, steps // EVALUATIONS), worth)
        texts = unseen_texts(self.bench, self.progress)
        return HeldOut(texts, rule, lambda: self.speed(family, folder), frozenset(points))

    def speed(self, family: str, folder: Path) -> Speed:
        """Prices acceptance of the head in a folder, on the problem's device."""
        from specplan.gathering import gather
        from specplan.training.evaluating import planned_speed, with_head

        facts = gather(with_head(self.problem, family, folder), self.progress)
        return planned_speed(facts, family)


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
