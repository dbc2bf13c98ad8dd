"""Training of a head along its target's own texts, by the passes that decoding runs.

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

import torch

from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import name_of
from specplan.measure.progress import Progress, silent
from specplan.planner.training.curves import Evaluation
from specplan.planner.training.stopping import Verdict
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.training.checkpoints import read_checkpoint, read_state, write_checkpoint
from specplan.training.learning.features import Features
from specplan.training.learning.objective import loss_of
from specplan.training.learning.packing import Text, labels_of, packed
from specplan.training.learning.processes import add_up, join_processes, share, wait
from specplan.training.new_heads import new_head
from specplan.training.recipe import USUAL, Recipe, fast_type, objective_of


@dataclass(frozen=True)
class Trained:
    """A training that came to its last step.

    Attributes:
        head: with its weights.
        steps: of the whole training.
        losses: of the steps that ran now.
        evaluations: on held-out texts, if it was judged.
        verdicts: of the rule that may stop it, likewise.
    """

    head: Drafter
    steps: int
    losses: tuple[float, ...]
    evaluations: tuple[Evaluation, ...] = ()
    verdicts: tuple[Mapping[str, Any], ...] = ()


class HeadEvaluator(Protocol):
    """Evaluates a head during its training, and says whether to go on."""

    def due(self, steps: int) -> bool:
        """There is an evaluation after so many steps."""
        ...

    def look(self, head: Drafter, steps: int) -> Evaluation:
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
    judge: HeadEvaluator | None = None,
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
    training = _Training.opened(config, target, texts, folder, recipe, steps)
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
    training.head.requires_grad_(False).eval()
    seen = tuple(training.evaluations), tuple(training.verdicts)
    return Trained(training.head, done, tuple(losses), *seen)


@dataclass
class _Training:
    """A head with its optimizer, and the part of this process.

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

    config: Mapping[str, Any]
    features: Features
    folder: Path
    recipe: Recipe
    head: Drafter
    optimizer: torch.optim.Optimizer
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
        config: Mapping[str, Any],
        target: CausalModel,
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
                f"{size} processes share {each} rows of texts in a step",
                remedy="Start fewer processes, or give more prompts.",
            )
        fixed = {**_identity(config, target, texts, recipe), "processes": size}
        state = read_state(folder, fixed)
        head = new_head(config, target, recipe.seed, (text.tokens for text in texts))
        optimizer = torch.optim.AdamW(
            head.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        if state is not None:
            read_checkpoint(folder, head, optimizer)
        objective = objective_of(head, recipe, getattr(torch, fixed["compute"]))
        features = Features(head, groups, objective)
        state = state or {"step": 0}
        end, cools = steps, steps - round(recipe.cooling * steps)
        if state.get("stopped") and int(state["budget"]) == steps:
            end, cools = int(state["end"]), int(state["cools"])
        return cls(
            config, features, folder, recipe, head, optimizer, {**fixed, "budget": steps},
            int(state["step"]), end, cools, rank, size,
            [Evaluation.from_dict(one) for one in state.get("evaluations", ())],
            list(state.get("verdicts", ())),
        )  # fmt: skip

    def step(self, step: int) -> float:
        """One step, and its loss before it."""
        recipe, weights = self.recipe, list(self.head.parameters())
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * self._rate(step)
        self.optimizer.zero_grad()
        numbers = _numbers(len(self.features.groups), step, recipe)
        rows, features = self.features.rows(share(numbers, self.rank, self.size))
        objective = self.features.objective
        head = self.head.description
        most = recipe.blocks if head.join == "block" else None
        labels = labels_of(rows, len(objective.weights), head.begins, most, step)
        totals = labels.counts.sum((1, 2))
        add_up([totals], self.size)
        loss = loss_of(self.head, rows, labels, features, objective, totals)
        add_up([loss, *(w.grad for w in weights if w.grad is not None)], self.size)
        if not isfinite(loss.item()):
            raise _no_number(step, self.folder)
        torch.nn.utils.clip_grad_norm_(weights, recipe.clip)
        self.optimizer.step()
        return loss.item()

    def _rate(self, step: int) -> float:
        """Part of the learning rate at a step."""
        cooled = (self.end - step) / max(self.end - self.cools, 1)
        return min(1.0, (step + 1) / self.recipe.warmup, cooled)

    def judge(self, judge: HeadEvaluator, done: int) -> None:
        """Evaluate, and end early if the next interval does not pay."""
        self.head.eval()
        self.evaluations.append(judge.look(self.head, done))
        self.head.train()
        if done > self.cools or done == self.end:
            return  # a falling learning rate lifts acceptance off its curve
        result = judge.decide(self.evaluations, lambda: self.save(done))
        self.verdicts.append(result.as_dict())
        if result.stop:
            last = max(round(self.recipe.cooling * done), 1)
            self.end, self.cools = min(self.end, done + last), done

    def save(self, done: int) -> None:
        """Write the checkpoint, by the first process."""
        if not all(weight.isfinite().all() for weight in self.head.parameters()):
            raise _no_number(done - 1, self.folder)
        if self.rank == 0:
            state = {
                "step": done, **self.fixed, "end": self.end, "cools": self.cools,
                "stopped": self.end < int(self.fixed["budget"]),
                "evaluations": [asdict(one) for one in self.evaluations],
                "verdicts": self.verdicts,
            }  # fmt: skip
            write_checkpoint(self.folder, self.config, self.head, self.optimizer, state)
        wait(self.size)


def _numbers(rows: int, step: int, recipe: Recipe) -> list[int]:
    """The rows of a step: every epoch has an order of its own."""
    size = min(recipe.rows, rows)
    epoch, place = divmod(step, rows // size)
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(rows, generator=generator)
    return order[place * size : (place + 1) * size].tolist()


def _identity(
    config: Mapping[str, Any], target: CausalModel, texts: Sequence[Text], recipe: Recipe
) -> dict[str, Any]:
    """What a training must go on with."""
    return {
        "head": name_of(json.dumps(dict(config), sort_keys=True)),
        "target": target.digest,
        "number_type": str(target.dtype),
        "compute": str(fast_type(target.dtype)).removeprefix("torch."),
        "texts": name_of(json.dumps([asdict(text) for text in texts])),
        "answers": len(texts),
        "recipe": {k: v for k, v in asdict(recipe).items() if k != "save_every"},
    }


def _no_number(step: int, folder: Path) -> SpecplanError:
    last = f"the last checkpoint, {folder}, is whole" if folder.exists() else "nothing is saved yet"
    return SpecplanError(
        f"the loss or a weight of step {step + 1} is no number; {last}",
        where=str(folder),
        remedy="Train with a lower learning rate, or look for texts that are broken.",
    )
