"""Distillation of a draft model from its target.

DistillSpec (Zhou et al. 2023, arXiv 2310.08461): a draft model learns the target's distribution
along texts of the target, or along its own samples (on policy, as Agarwal et al. 2023, arXiv
2306.13649), by a divergence that is chosen. Direct alignment (Goel et al. 2024, arXiv 2403.00858)
is the same on the target's texts alone with the loss `tvd++`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specplan.ir.errors import UsageError
from specplan.ir.files import model_digest
from specplan.measure.acceptance.heads import text_features
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.supported import LEARNED_POSITIONS
from specplan.training.drafts.passes import Stack, runtime_model, trainable_model
from specplan.training.drafts.samples import drawn_on_policy, own_texts
from specplan.training.learning.features import Features
from specplan.training.learning.learner import Learner
from specplan.training.learning.objective import Objective
from specplan.training.learning.packing import Rows, Text
from specplan.training.losses import step_weights
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
        parallel: tokens that it is to draft in one pass (PARD, arXiv 2504.18583), from up to
            `blocks` roots of a row in a step; 1 for one by one.
    """

    learning_rate: float = LEARNING_RATE
    on_policy: float = ON_POLICY
    parallel: int = 1


class DraftLearner(Learner):
    """A draft model that learns its target's distribution of the next token.

    Args:
        folder: its checkpoint before the first step.
        target: that it drafts for.
        recipe: how it is trained.
        stops: tokens that end a text.
        before: draft models whose mistakes alone it learns, so that it complements them (boosting
            of SpecInfer, arXiv 2305.09781).
        texts: that are learned; where it is to draft in parallel (`DistillRecipe.parallel`), the
            mask token is one that they have not.

    Attributes:
        mask_token: stands where it is to tell further tokens; None where it drafts one by one.

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
        before: Sequence[CausalModel] = (),
        texts: Iterable[Text] = (),
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
        self.identity: dict[str, Any] = {"draft": model_digest(folder)}
        self.before = tuple(before)
        if before:
            self.identity |= {"earlier_drafts": [model.digest for model in before]}
        self.mask_token: int | None = None
        if recipe.parallel > 1:
            self.mask_token = self._new_mask(texts)
            self.blocks = True
            self.model.config.pard_token, self.model.config.spd_type = self.mask_token, "pard"
            self.identity |= {"mask_token": self.mask_token}

    def _new_mask(self, texts: Iterable[Text]) -> int:
        """The token that its checkpoint names, or the last one that no text has.

        Raises:
            UsageError: there is none, or it learns a position by a table.
        """
        config = self.model.config
        if config.model_type in LEARNED_POSITIONS:
            raise UsageError(
                f"models of type {config.model_type} do not draft in parallel here",
                where=str(self.folder),
                remedy="Take a Llama, Mistral or Qwen model.",
            )
        stated = getattr(config, "pard_token", None)
        known = {token for text in texts for token in text.tokens}
        free = next((t for t in reversed(range(self.vocabulary)) if t not in known), None)
        if stated is None and free is None:
            raise UsageError("the texts contain every token, so none is free as the mask token")
        return int(free if stated is None else stated)  # type: ignore[arg-type]

    @property
    def drafter(self) -> CausalModel:
        """See `Learner.drafter`."""
        return runtime_model(self.model, self.folder.name)

    def trains(self, training: bool) -> None:
        """See `Learner.trains`; never with dropout."""
        self.model.requires_grad_(training)

    def states(self, texts: Texts, features: Tensor, steps: int, roots: Tensor) -> Iterator[Tensor]:
        """See `Learner.states`."""
        return self.stack.ahead(texts, roots, steps, self.mask_token)

    def logits(self, states: Tensor, step: int) -> Tensor:
        """See `Learner.logits`; at the temperature that the target is served at, as drafts are."""
        logits: Tensor = self.model.get_output_embeddings()(states)
        return logits / self.recipe.temperature

    def rows(self, features: Features, numbers: Sequence[int], step: int) -> tuple[Rows, Tensor]:
        """See `Learner.rows`: of the target's texts, or of its own samples after their prompts."""
        recipe = self.recipe
        if drawn_on_policy(recipe.on_policy, recipe.seed, step):
            groups = [features.groups[number] for number in numbers]
            seed, temperature = recipe.seed + step, recipe.temperature
            own = own_texts(self.drafter, groups, temperature, seed, self.stops)
            rows, states = features.of_others(own)
        else:
            rows, states = features.rows(numbers)
        for model in self.before:
            rows = replace(rows, counts=rows.counts & mistakes(model, rows))
        return rows, states

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


@torch.no_grad()
def mistakes(model: CausalModel, rows: Rows) -> Tensor:
    """Tokens of texts that are not a model's first choice, bool `[B, T]`."""
    states = text_features(model, rows.texts, ())
    missed = torch.ones_like(rows.counts)
    for row, own in enumerate(states):  # logits of one row at a time
        missed[row, 1:] = model.logits(own[None, :-1])[0].argmax(-1) != rows.texts.tokens[row, 1:]
    return missed


def soft_objective(learner: Learner, recipe: DistillRecipe) -> Objective:
    """What a draft model learns by a recipe: the target's distribution after every token.

    Args:
        learner: the draft model.
        recipe: with a temperature above 0.
    """
    compute = fast_type(learner.target.dtype, learner.target.device)
    weights = step_weights(recipe.parallel, recipe.decay)
    return Objective(recipe.loss, weights, recipe.temperature, compute, answers=False)
