"""Training of a head along its target's own texts, by the passes that decoding runs.

The order of the texts and every number follow from the seed and the step alone, so that a training
that was ended goes on exactly where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import name_of
from specplan.measure.acceptance.heads import depth_of, text_features
from specplan.measure.progress import Progress, silent
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.unrolled import unrolled
from specplan.training.checkpoints import read_checkpoint, read_state, write_checkpoint
from specplan.training.losses import (
    LOSSES,
    labels_ahead,
    multi_step_loss,
    step_weights,
    target_probabilities,
)
from specplan.training.new_heads import new_head
from specplan.training.processes import add_up, join_processes, share, wait


@dataclass(frozen=True)
class Text:
    """What the target wrote.

    Attributes:
        tokens: of the prompt and the answer.
        start: length of the prompt; only the answer is learned.
    """

    tokens: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Recipe:
    """How a head is trained.

    Attributes:
        batch: texts of a step.
        learning_rate: of Adam, reached after `warmup` steps.
        warmup: steps over which the learning rate rises.
        clip: largest norm of a gradient.
        loss: a name of `specplan.training.losses.LOSSES`.
        unroll: tokens ahead that are learned; at most those of the head.
        decay: weight of a token ahead over that of the one before (EAGLE-3, Medusa).
        temperature: that the target is served at.
        save_every: steps between checkpoints.
        seed: of everything that is random.
    """

    batch: int = 8
    learning_rate: float = 1e-3
    warmup: int = 20
    clip: float = 0.5
    loss: str = "ce"
    unroll: int = 7
    decay: float = 0.8
    temperature: float = 0.0
    save_every: int = 100
    seed: int = 0


@dataclass(frozen=True)
class Trained:
    """A training that came to its last step.

    Attributes:
        head: with its weights.
        steps: of the whole training.
        losses: of the steps that ran now.
    """

    head: Drafter
    steps: int
    losses: tuple[float, ...]


def train_head(
    config: Mapping[str, Any],
    target: CausalModel,
    texts: Sequence[Text],
    steps: int,
    folder: Path,
    recipe: Recipe = Recipe(),
    progress: Progress = silent,
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

    Raises:
        MissingCapabilityError: heads of this family are not trained here.
        UsageError: the folder holds something else, or a training of something else.
        SpecplanError: the loss is no number, or a checkpoint cannot be written; the last one is
            whole.
    """
    training = _Training.opened(config, target, texts, folder, recipe)
    losses: list[float] = []
    for step in range(training.first, steps):
        losses.append(training.step(step))
        done = step + 1
        progress(f"training: loss {losses[-1]:.3f}", done, steps)
        if done == steps or done % recipe.save_every == 0:
            training.save(done)
    training.head.requires_grad_(False).eval()
    return Trained(training.head, max(training.first, steps), tuple(losses))


@dataclass(frozen=True)
class _Training:
    """A head with its optimizer, and the part of this process.

    Attributes:
        fixed: what it must go on with.
        first: the step that runs next.
        rank: of this process.
        size: how many processes there are.
    """

    config: Mapping[str, Any]
    texts: Sequence[Text]
    folder: Path
    recipe: Recipe
    head: Drafter
    optimizer: torch.optim.Optimizer
    fixed: Mapping[str, Any]
    first: int
    rank: int
    size: int

    @classmethod
    def opened(
        cls,
        config: Mapping[str, Any],
        target: CausalModel,
        texts: Sequence[Text],
        folder: Path,
        recipe: Recipe,
    ) -> _Training:
        """A new training, or the one of the folder; see `train_head`."""
        rank, size = join_processes()
        each = min(recipe.batch, len(texts))
        if each < size:
            raise UsageError(
                f"{size} processes share {each} texts of a step",
                remedy="Start fewer processes, or give more prompts.",
            )
        fixed = {**_identity(config, target, texts, recipe), "processes": size}
        state = read_state(folder, fixed)
        head = new_head(config, target, recipe.seed, (text.tokens for text in texts))
        optimizer = torch.optim.AdamW(
            head.parameters(), betas=(0.9, 0.95), weight_decay=0.0, foreach=False
        )
        if state is not None:
            read_checkpoint(folder, head, optimizer)
        first = 0 if state is None else int(state["step"])
        return cls(config, texts, folder, recipe, head, optimizer, fixed, first, rank, size)

    def step(self, step: int) -> float:
        """One step, and its loss before it."""
        recipe, weights = self.recipe, list(self.head.parameters())
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1.0, (step + 1) / recipe.warmup)
        self.optimizer.zero_grad()
        texts = share(_batch(self.texts, step, recipe), self.rank, self.size)
        loss = head_loss(self.head, texts, recipe, self.size)
        loss.backward()
        loss = loss.detach()
        add_up([loss, *(w.grad for w in weights if w.grad is not None)], self.size)
        if not isfinite(loss.item()):
            raise _no_number(step, self.folder)
        torch.nn.utils.clip_grad_norm_(weights, recipe.clip)
        self.optimizer.step()
        return loss.item()

    def save(self, done: int) -> None:
        """Write the checkpoint, by the first process."""
        if not all(weight.isfinite().all() for weight in self.head.parameters()):
            raise _no_number(done - 1, self.folder)
        if self.rank == 0:
            state = {"step": done, **self.fixed}
            write_checkpoint(self.folder, self.config, self.head, self.optimizer, state)
        wait(self.size)


def head_loss(head: Drafter, texts: Sequence[Text], recipe: Recipe, processes: int = 1) -> Tensor:
    """The loss of a head on some texts: the weighted sum over tokens ahead, in nats.

    Of several processes that share the texts of a step it is the part of this one: the sum over all
    is the loss of the step.

    Tokens behind the end of a shorter text stand for nothing: no row before them sees them, and
    no label is one of them.
    """
    target, device = head.target, head.device
    longest = max(len(text.tokens) for text in texts)
    tokens = torch.zeros(len(texts), longest, dtype=torch.int64)
    counts = torch.zeros(len(texts), longest, dtype=torch.bool)
    for row, text in enumerate(texts):
        tokens[row, : len(text.tokens)] = torch.tensor(text.tokens)
        counts[row, text.start : len(text.tokens)] = True
    tokens, counts = tokens.to(device), counts.to(device)
    with torch.no_grad():
        layers = head.description.reads.layers
        states = text_features(target, tokens, (*layers, target.num_layers))
        last = states[..., -target.hidden_size :]
        features = states[..., : -target.hidden_size] if layers else last
        logits = target.rows(last, "logits", None)
        wanted = target_probabilities(logits, recipe.temperature, head.outputs.tokens)
    known, loss = head.outputs.tokens, LOSSES[recipe.loss]
    ahead = min(recipe.unroll, depth_of(head))
    losses, valid = [], []
    for step, guess in enumerate(unrolled(head, tokens, features, ahead)):
        guess = guess if known is None else guess[..., known]
        losses.append(loss(guess, wanted.roll(-step, 1)))
        counted = labels_ahead(tokens, counts, step + 1)[1]
        counted[:, : head.description.begins] = False
        valid.append(counted)
    totals = torch.stack([counted.sum() for counted in valid])
    add_up([totals], processes)
    return multi_step_loss(losses, valid, step_weights(ahead, recipe.decay), totals)


def _batch(texts: Sequence[Text], step: int, recipe: Recipe) -> list[Text]:
    """The texts of a step: every epoch has an order of its own."""
    size = min(recipe.batch, len(texts))
    per_epoch = len(texts) // size
    epoch, place = divmod(step, per_epoch)
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(texts), generator=generator)
    return [texts[int(index)] for index in order[place * size : (place + 1) * size]]


def _identity(
    config: Mapping[str, Any], target: CausalModel, texts: Sequence[Text], recipe: Recipe
) -> dict[str, Any]:
    """What a training must go on with."""
    return {
        "head": name_of(json.dumps(dict(config), sort_keys=True)),
        "target": target.digest,
        "number_type": str(target.dtype),
        "texts": name_of(json.dumps([asdict(text) for text in texts])),
        "recipe": {k: v for k, v in asdict(recipe).items() if k != "save_every"},
    }


def _no_number(step: int, folder: Path) -> SpecplanError:
    last = f"the last checkpoint, {folder}, is whole" if folder.exists() else "nothing is saved yet"
    return SpecplanError(
        f"the loss or a weight of step {step + 1} is no number; {last}",
        where=str(folder),
        remedy="Train with a lower learning rate, or look for texts that are broken.",
    )
