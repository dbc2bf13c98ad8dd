"""What the stages of `specplan train` share: a problem, its target and the texts to learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.ir.errors import UsageError
from specplan.progress import Progress

if TYPE_CHECKING:
    from specplan.measure.workbench import Workbench
    from specplan.planner.problem.models import DraftModel
    from specplan.planner.problem.schema import Problem
    from specplan.planner.training.stopping import Speed
    from specplan.problems import ProblemLike
    from specplan.training.evaluating import HeldOut
    from specplan.training.learning.packing import Text
    from specplan.training.trainer import Trained

FULL = ("float32", "float64")
ONLY_DRAFT = "draft_model"
EVALUATIONS = 20
"""Of a training that may end early, over its steps."""


@dataclass
class Session:
    """What trainings of one problem share.

    Attributes:
        problem: without drafters of its own.
        bench: with its target.
        texts: that the target wrote.
        settings: of recipes, where they are not the usual.
        drafts: draft models to be trained, by name; others are families of heads.
        earlier: draft models whose mistakes alone are learned.
        progress: called during everything that takes long.
    """

    problem: Problem
    bench: Workbench
    texts: Sequence[Text]
    settings: Mapping[str, Any]
    drafts: Mapping[str, DraftModel]
    earlier: Sequence[DraftModel]
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
        """Read the problem, and let its target answer the prompts.

        `more` as of `Recipe` and `DistillRecipe`; None is the usual.

        Raises:
            UsageError: what a family, the loss or the prompts lack, before anything is decoded.
        """
        from specplan.planner.training.described import published_config
        from specplan.problems import as_problem
        from specplan.runtime import require_torch

        given, after = as_problem(problem), more.pop("after", ())
        earlier = _plain_drafts(given, after)
        drafts = {name: one for name in drafters if (one := draft_named(given, name)) is not None}
        checked = bare_problem(given, prompts=True)
        require_torch()
        from specplan.measure.workbench import Workbench
        from specplan.training.losses import parts_of
        from specplan.training.texts import training_texts

        parts_of(more["loss"])
        for family in drafters:
            if family not in drafts:
                published_config(checked, family)
        bench = Workbench(checked)
        file = None if prompts is None else Path(prompts)
        texts = training_texts(bench, file, progress, more["answers"])
        of_drafts = [name for name in ("on_policy", "parallel") if more.get(name) is not None]
        of_drafts += ["after"] if earlier else []
        if of_drafts and len(drafts) != len(drafters):
            raise UsageError(
                "this setting is for draft models: heads learn along the target's texts only",
                where=of_drafts[0],
                remedy="Leave it out, or train a draft model.",
            )
        if more.get("unroll") is not None and drafts:
            raise UsageError(
                "this setting is for heads: a draft model drafts one token at a time",
                where="unroll",
                remedy="Leave it out, or train a head.",
            )
        settings = {name: value for name, value in more.items() if value is not None}
        return cls(checked, bench, texts, settings, drafts, earlier, progress)

    def train(self, family: str, folder: Path, steps: int, **more: Any) -> Trained:
        """A training of its own; `more` as of `train_head`."""
        if family in self.drafts:
            return self._distill(self.drafts[family], folder, steps, **more)
        from specplan.ir.files import read_json
        from specplan.planner.training.described import published_config
        from specplan.training.recipe import Recipe, usual
        from specplan.training.trainer import train_head

        given = folder / "config.json"
        config = read_json(given) if given.is_file() else published_config(self.problem, family)
        target, seed = self.bench.models["target"], self.problem.seed
        temperature = self.problem.workload.temperature
        settings: dict[str, Any] = {**usual(target.hidden_size), **self.settings}
        recipe = Recipe(temperature=temperature, seed=seed, **settings)
        return train_head(config, target, self.texts, steps, folder, recipe, self.progress, **more)

    def _distill(self, draft: DraftModel, folder: Path, steps: int, **more: Any) -> Trained:
        """The training of a draft model."""
        from specplan.runtime.models.loading import load_model
        from specplan.training.drafts.distilling import DistillRecipe, DraftLearner, soft_objective
        from specplan.training.trainer import train_learner

        # of a greedy target, too, all of its distribution is learned
        temperature = self.problem.workload.temperature or 1.0
        settings: dict[str, Any] = {"temperature": temperature, "seed": self.problem.seed}
        if self.settings.get("parallel", 1) > 1:
            settings["on_policy"] = 0.0  # as PARD has it, unless stated
        recipe = DistillRecipe(**{**settings, **self.settings})
        if recipe.parallel > 1 and more.get("judge") is not None:
            raise UsageError(
                "a draft model that drafts in one pass is measured by running its rounds, which "
                "training does not do",
                where="parallel",
                remedy="Run all steps (no --worth, no pilot), and profile the result.",
            )
        stops, target = self.bench.tokenizer.stop_tokens, self.bench.models["target"]
        before = [load_model(one.path, dtype=one.dtype) for one in self.earlier]
        learner = DraftLearner(draft.path, target, recipe, stops, before, self.texts)
        objective = soft_objective(learner, recipe)
        return train_learner(
            learner, objective, self.texts, steps, folder, recipe, self.progress, **more
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
        """Prices acceptance of the drafter in a folder, on the problem's device."""
        name = self.drafts[family].name if family in self.drafts else family
        from specplan.gathering import gather
        from specplan.training.evaluating import planned_speed, with_drafter

        facts = gather(with_drafter(self.problem, name, folder), self.progress)
        return planned_speed(facts, name)


def draft_named(problem: Problem, name: str) -> DraftModel | None:
    """The draft model of a problem by its name, or its only one by `draft_model`.

    Returns:
        None where the name is that of no draft model: one that reads the target's hidden states is
        a head, which is trained by its family.

    Raises:
        UsageError: the problem has no draft model, or several, and none of them was named.
    """
    from specplan.cost_models.models.drafter_shapes import is_drafter_folder

    models = {one.name: one for one in problem.models.drafts if not is_drafter_folder(one.path)}
    if name != ONLY_DRAFT:
        return models.get(name)
    if len(models) != 1:
        raise UsageError(
            f"the problem lists {len(models)} draft models",
            where="models.drafts",
            remedy=f"Name one of them: {', '.join(models)}." if models else "List one there.",
        )
    return next(iter(models.values()))


def _plain_drafts(problem: Problem, names: Sequence[str]) -> list[DraftModel]:
    """Draft models of a problem by their names.

    Raises:
        UsageError: one of them is none.
    """
    models = {name: draft_named(problem, name) for name in names}
    if unknown := [name for name, one in models.items() if one is None]:
        raise UsageError(
            f'the problem lists no draft model "{unknown[0]}"',
            where="after",
            remedy="Name draft models of the problem, which stand there as they were trained.",
        )
    return [one for one in models.values() if one is not None]


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
