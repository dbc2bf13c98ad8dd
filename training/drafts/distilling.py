"""Distillation of a draft model from its target.

DistillSpec (Zhou et al. 2023, arXiv 2310.08461): a draft model learns the target's distribution
along texts of the target, or along its own samples (on policy, as Agarwal et al. 2023, arXiv
2306.13649), by a divergence that is chosen. Direct alignment (Goel et al. 2024, arXiv 2403.00858)
is the same on the target's texts alone with the loss `tvd++`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specplan.ir.errors import UsageError
from specplan.ir.files import model_digest
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.text_attention import Texts
from specplan.training.drafts.passes import Stack, runtime_model, trainable_model
from specplan.training.drafts.samples import drawn_on_policy, own_texts
from specplan.training.learning.features import Features
from specplan.training.learning.learner import Learner
from specplan.training.learning.objective import Objective
from specplan.training.learning.packing import Rows
from specplan.training.recipe import Recipe, fast_type

LEARNING_RATE = 3e-4
"""Of draft models: lower than of heads, as they are trained already."""
ON_POLICY = 0.5
"""Share of the steps: as much of either kind of text."""
_BESIDE = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "*.jinja")
"""Files of a checkpoint that training does not change."""


@dataclass(frozen=True)
class DistillRecipe(Recipe):
    """How a draft model is distilled.

    Attributes:
        on_policy: share of the steps that learn from the draft model's own samples.
    """

    learning_rate: float = LEARNING_RATE
    on_policy: float = ON_POLICY


class DraftLearner(Learner):
    """A draft model that learns its target's distribution of the next token.

    Args:
        folder: its checkpoint before the first step.
        target: that it drafts for.
        recipe: how it is trained.
        stops: tokens that end a text.

    Raises:
        UsageError: its vocabulary is not the target's.
        MissingCapabilityError: its architecture is not supported.
    """

    def __init__(
        self,
        folder: Path,
        target: CausalModel,
        recipe: DistillRecipe,
        stops: tuple[int, ...] = (),
    ) -> None:
        self.folder, self.target, self.recipe, self.stops = folder, target, recipe, stops
        self.module = self.model = trainable_model(folder, target.dtype, target.device)
        self.stack = Stack(self.model)
        self.vocabulary = int(self.model.config.vocab_size)
        if self.vocabulary != target.vocab_size:
            raise UsageError(
                f"its vocabulary has {self.vocabulary} entries, the target's {target.vocab_size}",
                where=str(folder),
                remedy="Take a draft model with the target's tokenizer.",
            )
        self.identity = {"draft": model_digest(folder)}

    @property
    def drafter(self) -> CausalModel:
        """See `Learner.drafter`."""
        return runtime_model(self.model, self.folder.name)

    def trains(self, training: bool) -> None:
        """See `Learner.trains`; never with dropout."""
        self.model.requires_grad_(training)

    def states(self, texts: Texts, features: Tensor, steps: int, roots: Tensor) -> Iterator[Tensor]:
        """See `Learner.states`."""
        states = self.stack.over(texts)
        yield states.gather(1, roots[..., None].expand(-1, -1, states.shape[2]))

    def logits(self, states: Tensor, step: int) -> Tensor:
        """See `Learner.logits`; at the temperature that the target is served at, as drafts are."""
        logits: Tensor = self.model.get_output_embeddings()(states)
        return logits / self.recipe.temperature

    def rows(self, features: Features, numbers: Sequence[int], step: int) -> tuple[Rows, Tensor]:
        """See `Learner.rows`: of the target's texts, or of its own samples after their prompts."""
        recipe = self.recipe
        if not drawn_on_policy(recipe.on_policy, recipe.seed, step):
            return features.rows(numbers)
        groups = [features.groups[number] for number in numbers]
        temperature = recipe.temperature
        return features.of_others(
            own_texts(self.drafter, groups, temperature, recipe.seed + step, self.stops)
        )

    def write(self, folder: Path) -> None:
        """See `Learner.write`: as `transformers` loads it, with its tokenizer."""
        self.model.save_pretrained(folder)
        for pattern in _BESIDE:
            for path in self.folder.glob(pattern):
                shutil.copy(path, folder / path.name)

    def read(self, folder: Path) -> None:
        """See `Learner.read`."""
        stored = trainable_model(folder, self.target.dtype, self.target.device)
        with torch.no_grad():
            self.model.load_state_dict(stored.state_dict())


def soft_objective(
    learner: Learner, recipe: Recipe, weights: Sequence[float] = (1.0,)
) -> Objective:
    """What a draft model learns by a recipe: the target's distribution after every token.

    Args:
        learner: the draft model.
        recipe: with a temperature above 0.
        weights: of the tokens ahead.
    """
    compute = fast_type(learner.target.dtype)
    return Objective(recipe.loss, tuple(weights), recipe.temperature, compute, answers=False)
