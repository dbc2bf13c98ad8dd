"""Training of a drafter along its target's own texts, by the passes that decoding runs.

The order of the texts and every number follow from the seed and the step alone, so that a training
that was ended goes on exactly where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import name_of
from specplan.measure.progress import Progress, silent
from specplan.planner.training.curves import Evaluation
from specplan.planner.training.stopping import Verdict
from specplan.runtime.models.causal import CausalModel
from specplan.training.checkpoints import read_optimizer, read_state, write_checkpoint
from specplan.training.learning.adam import Adam
from specplan.training.learning.features import Features
from specplan.training.learning.heads import HeadLearner
from specplan.training.learning.learner import Learner
from specplan.training.learning.objective import Objective
from specplan.training.learning.packing import Text, labels_of, numbers_of, packed
from specplan.training.learning.processes import add_up, join_processes, share, wait
from specplan.training.new_heads import new_head, size_of_states
from specplan.training.recipe import USUAL, Recipe, fast_type, objective_of


@dataclass(frozen=True)
class Trained:
    """A training that came to its last step.

    Attributes:
        drafter: with its weights, as the runtime drafts with it.
        steps: of the whole training.
        losses: of the steps that ran now.
        evaluations: on held-out texts, if it was judged.
        verdicts: of the rule that may stop it, likewise.
    """

    drafter: Any
    steps: int
    losses: tuple[float, ...]
    evaluations: tuple[Evaluation, ...] = ()
    verdicts: tuple[Mapping[str, Any], ...] = ()

    @property
    def head(self) -> Any:
        """The drafter, where it is a head."""
        return self.drafter


class Evaluator(Protocol):
    """Evaluates a drafter during its training, and says whether to go on."""

    def due(self, steps: int) -> bool:
        """There is an evaluation after so many steps."""
        ...

    def look(self, drafter: Any, steps: int) -> Evaluation:
        """An evaluation."""
        ...

    def decide(self, evaluations: Sequence[Evaluation], save: Callable[[], None]) -> Verdict:
        """The verdict after the last of some evaluations; `save` writes the checkpoint."""
        ...


def train_head(
    config: Mapping[str, Any],
    target: CausalModel,
    texts: Sequence[Text],
    steps: int,
    folder: Path,
    recipe: Recipe = USUAL,
    progress: Progress = silent,
    judge: Evaluator | None = None,
    until: int | None = None,
) -> Trained:
    """Train a head, from the checkpoint in its folder where there is one.

    Args:
        config: its config.json.
        target: that it drafts for; nothing of it changes.
        texts: that the target wrote.
        steps: of the whole training.
        folder: of the checkpoint, in the head's public format.
        recipe: how it is trained.
        progress: called after every step.
        judge: may end it early: then the learning rate falls from there on.
        until: step after which it pauses, as if it was ended there; None for the last.

    Raises:
        MissingCapabilityError: heads of this family are not trained here.
        UsageError: the folder holds something else, or a training of something else.
        SpecplanError: the loss is no number, or a checkpoint cannot be written; the last one is
            whole.
    """
    head = new_head(config, target, recipe.seed, [text.tokens for text in texts])
    learner = HeadLearner(head, config, recipe.loss, recipe.seed)
    size = size_of_states(head, texts[0].tokens)
    learner.rates = {"heads.": recipe.head_rate, "entering.project.": 1.0 / size}
    objective = objective_of(head, recipe, fast_type(target.dtype, target.device))
    return train_learner(
        learner, objective, texts, steps, folder, recipe, progress, judge=judge, until=until
    )


def train_learner(
    learner: Learner,
    objective: Objective,
    texts: Sequence[Text],
    steps: int,
    folder: Path,
    recipe: Recipe = USUAL,
    progress: Progress = silent,
    judge: Evaluator | None = None,
    until: int | None = None,
) -> Trained:
    """Train a drafter, from the checkpoint in its folder where there is one.

    Args:
        learner: the drafter before its first step.
        objective: what it learns.
        texts: see `train_head`.
        steps: see `train_head`.
        folder: see `train_head`.
        recipe: see `train_head`.
        progress: see `train_head`.
        judge: see `train_head`.
        until: see `train_head`.
    """
    training = _Training.opened(learner, objective, texts, folder, recipe, steps)
    losses: list[float] = []
    done = training.first
    while done < min(training.end, training.end if until is None else until):
        losses.append(training.step(done))
        done += 1
        progress(f"training: loss {losses[-1]:.3f}", done, training.end)
        if judge is not None and (judge.due(done) or done == training.end):
            training.judge(judge, done)
        if done in (training.end, until) or done % recipe.save_every == 0:
            training.save(done)
    learner.trains(False)
    seen = tuple(training.evaluations), tuple(training.verdicts)
    return Trained(learner.drafter, done, tuple(losses), *seen)


@dataclass
class _Training:
    """A drafter with its optimizer, and the part of this process.

    Attributes:
        fixed: what it must go on with.
        first: the step that runs next.
        end: the last step.
        cools: the step from which the learning rate falls.
        rank: of this process.
        size: how many processes there are.
        evaluations: so far.
        verdicts: so far.
    """

    learner: Learner
    features: Features
    folder: Path
    recipe: Recipe
    optimizer: Adam
    fixed: Mapping[str, Any]
    first: int
    end: int
    cools: int
    rank: int
    size: int
    evaluations: list[Evaluation] = field(default_factory=list)
    verdicts: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def opened(
        cls,
        learner: Learner,
        objective: Objective,
        texts: Sequence[Text],
        folder: Path,
        recipe: Recipe,
        steps: int,
    ) -> _Training:
        """A new training, or the one of the folder; see `train_head`."""
        rank, size = join_processes()
        groups = packed(texts, recipe.row_tokens)
        each = min(recipe.rows, len(groups))
        if each < size:
            raise UsageError(
                f"{size} processes cannot share {each} rows of text per step",
                remedy="Start fewer processes, or give more prompts.",
            )
        fixed = {**_identity(learner, objective, texts, recipe), "processes": size}
        state = read_state(folder, fixed)
        learner.trains(True)
        optimizer = Adam(learner)
        if state is not None:
            learner.read(folder)
            read_optimizer(folder, optimizer)
        features = Features(learner, groups, objective)
        state = state or {"step": 0}
        end, cools = steps, steps - round(recipe.cooling * steps)
        if state.get("stopped") and int(state["budget"]) == steps:
            end, cools = int(state["end"]), int(state["cools"])
        return cls(
            learner, features, folder, recipe, optimizer, {**fixed, "budget": steps},
            int(state["step"]), end, cools, rank, size,
            [Evaluation.from_dict(one) for one in state.get("evaluations", ())],
            list(state.get("verdicts", ())),
        )  # fmt: skip

    def step(self, step: int) -> float:
        """One step, and its loss before it."""
        recipe, learner = self.recipe, self.learner
        self.optimizer.forget()
        numbers = numbers_of(len(self.features.groups), recipe.rows, recipe.seed, step)
        rows, features = learner.rows(self.features, share(numbers, self.rank, self.size), step)
        objective = self.features.objective
        most = recipe.blocks if learner.blocks else None
        labels = labels_of(rows, len(objective.weights), learner.begins, most, step)
        totals = labels.counts.sum((1, 2))
        add_up([totals], self.size)
        loss = learner.loss(rows, labels, features, objective, totals)
        add_up([loss, *self.optimizer.gradients], self.size)
        if not isfinite(loss.item()):
            raise _no_number(step, self.folder)
        self.optimizer.step(recipe.learning_rate * self._rate(step), recipe.clip)
        return loss.item()

    def _rate(self, step: int) -> float:
        """Part of the learning rate at a step."""
        cooled = (self.end - step) / max(self.end - self.cools, 1)
        return min(1.0, (step + 1) / self.recipe.warmup, cooled)

    def judge(self, judge: Evaluator, done: int) -> None:
        """Evaluate, and end early if the next interval does not pay."""
        self.learner.trains(False)
        self.evaluations.append(judge.look(self.learner.drafter, done))
        self.learner.trains(True)
        if done > self.cools or done == self.end:
            return  # a falling learning rate lifts acceptance off its curve
        result = judge.decide(self.evaluations, lambda: self.save(done))
        self.verdicts.append(result.as_dict())
        if result.stop:
            last = max(round(self.recipe.cooling * done), 1)
            self.end, self.cools = min(self.end, done + last), done

    def save(self, done: int) -> None:
        """Write the checkpoint, by the first process."""
        if not all(weight.isfinite().all() for weight in self.learner.module.parameters()):
            raise _no_number(done - 1, self.folder)
        if self.rank == 0:
            state = {
                "step": done, **self.fixed, "end": self.end, "cools": self.cools,
                "stopped": self.end < int(self.fixed["budget"]),
                "evaluations": [asdict(one) for one in self.evaluations],
                "verdicts": self.verdicts,
            }  # fmt: skip
            write_checkpoint(self.folder, self.learner, self.optimizer, state)
        wait(self.size)


def _identity(
    learner: Learner, objective: Objective, texts: Sequence[Text], recipe: Recipe
) -> dict[str, Any]:
    """What a training must go on with."""
    target = learner.target
    return {
        **learner.identity,
        "target": target.digest,
        "number_type": str(target.dtype),
        "compute": str(objective.compute).removeprefix("torch."),
        "texts": name_of(json.dumps([asdict(text) for text in texts])),
        "answers": len(texts),
        "recipe": {k: v for k, v in asdict(recipe).items() if k != "save_every"},
    }


def _no_number(step: int, folder: Path) -> SpecplanError:
    last = f"the last checkpoint, {folder}, is whole" if folder.exists() else "nothing is saved yet"
    return SpecplanError(
        f"the loss or a weight of step {step + 1} is not a number; {last}",
        where=str(folder),
        remedy="Train with a lower learning rate, or look for broken texts.",
    )
