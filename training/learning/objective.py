"""The loss of a drafter on a pass, and its gradients, without ever holding the logits of a pass.

The target's probabilities at some labels, the drafter's logits at all steps that have these labels,
and the gradients of both are computed in turns (`CHUNK`), so that memory does not grow with the
vocabulary times the tokens. Positions without a label have no logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from specplan.ir.errors import UsageError
from specplan.runtime.models.causal import CausalModel
from specplan.training.learning.packing import Labels, Rows
from specplan.training.losses import (
    ADVERSARY,
    LOSSES,
    STATE,
    against,
    discriminator_loss,
    parts_of,
    state_loss,
    target_probabilities,
)

if TYPE_CHECKING:
    from specplan.training.learning.learner import Learner

CHUNK = 1 << 21
"""Logits of a step that are computed at once: 8 MiB in float32."""
_OF_NO_LABEL = -100
_HARD = ("ce", "kl")
"""Losses that on one certain token are -log p of it."""


@dataclass(frozen=True)
class Objective:
    """What is learned.

    Attributes:
        loss: see `specplan.training.losses.parts_of`.
        weights: of the tokens ahead, one for each.
        temperature: that the target is served at.
        compute: number type of products; sums and weights have the target's.
        chunk: logits that are computed at once.
        answers: the texts are what the target wrote; else what it would write after each token.
    """

    loss: str
    weights: tuple[float, ...]
    temperature: float
    compute: torch.dtype
    chunk: int = CHUNK
    answers: bool = True

    @property
    def reads_target(self) -> bool:
        """It needs the target's states after the last layer.

        Of answers that the target wrote at temperature 0, these are all there is to learn from
        distributions.
        """
        beside = {STATE, ADVERSARY} & self.parts.keys()
        return self.temperature > 0.0 or not self.answers or bool(beside)

    @property
    def parts(self) -> Mapping[str, float]:
        """The parts of the loss, and their weights."""
        return parts_of(self.loss)

    def products(self, target: CausalModel) -> AbstractContextManager[object]:
        """The context in which products have the type `compute`."""
        less = self.compute != target.dtype
        return torch.autocast(target.device.type, self.compute, enabled=less)


def loss_of(
    learner: Learner,
    rows: Rows,
    labels: Labels,
    features: Tensor,
    objective: Objective,
    totals: Tensor | None = None,
) -> Tensor:
    """The loss in nats: the weighted sum over tokens ahead of means over labels.

    Where gradients are on, those of the drafter's weights are added to theirs.

    Args:
        learner: the drafter.
        rows: texts.
        labels: of these rows, for as many steps as there are weights.
        features: the target's states that it reads, `[B, T, F]`; behind them those after the
            last layer, if the objective reads them.
        objective: what is learned.
        totals: labels of every step in all processes that share the step; None for those here.
    """
    target, steps = learner.target, len(objective.weights)
    given = labels.counts.sum((1, 2)) if totals is None else totals
    weights = torch.tensor(objective.weights, device=target.device) / given.clamp_min(1)
    with objective.products(target):
        states = learner.states(rows.texts, features[..., : learner.width], steps, labels.roots)
        parts = [
            _Part(step, float(weights[step]), state[counts], _places(labels, rows, step))
            for step, (state, counts) in enumerate(zip(states, labels.counts, strict=True))
        ]
        loss = _in_chunks(learner, rows, parts, features, objective)
    learned = [part for part in parts if part.leaf.grad is not None]
    if learned:
        torch.autograd.backward(
            [part.states for part in learned], [part.leaf.grad for part in learned]
        )
    return loss


class _Part:
    """A step's states that have labels, in the order of the labels.

    Attributes:
        step: its number, 0 for the next token.
        weight: of the loss of one of its labels.
        states: `[N, F]`.
        places: int64 `[N]`, rising, of the labels among all tokens of the pass.
        leaf: the states, where the gradients of logits gather.
    """

    def __init__(self, step: int, weight: float, states: Tensor, places: Tensor) -> None:
        self.step, self.weight, self.states, self.places = step, weight, states, places
        self.leaf = states.detach().requires_grad_(states.requires_grad)

    def within(self, first: Tensor, last: Tensor) -> slice:
        """Those whose labels lie from one place to another, both included."""
        begin = torch.searchsorted(self.places, first)
        return slice(int(begin), int(torch.searchsorted(self.places, last, right=True)))


def _places(labels: Labels, rows: Rows, step: int) -> Tensor:
    """Of the labels of a step among all tokens of the pass, rising, int64 `[N]`."""
    batch, column = labels.counts[step].nonzero(as_tuple=True)
    return batch * rows.texts.tokens.shape[1] + labels.roots[batch, column] + step + 1


def _in_chunks(
    learner: Learner, rows: Rows, parts: Sequence[_Part], features: Tensor, objective: Objective
) -> Tensor:
    """The loss; gradients of the logits go to the leaves and to the weights behind them."""
    exact = learner.target.logits_dtype
    total = torch.zeros((), dtype=exact, device=learner.target.device)
    every = torch.cat([part.places for part in parts]).unique()
    size = max(1, objective.chunk // learner.vocabulary)
    for chunk in every.split(size):
        wanted = _wanted(learner, rows, chunk, features, objective)
        beside = _beside(learner, chunk, features, objective)
        for part in parts:
            inside = part.within(chunk[0], chunk[-1])
            if inside.start == inside.stop:
                continue
            logits = learner.logits(part.leaf[inside], part.step).to(exact)
            row = torch.searchsorted(chunk, part.places[inside])
            loss = wanted(logits, row)
            if beside is not None:
                loss = loss + beside(part.leaf[inside], part.step, logits, row)
            loss = part.weight * loss
            if loss.requires_grad:
                loss.backward()
            total += loss.detach()
    return total


def _last(learner: Learner, chunk: Tensor, features: Tensor) -> Tensor:
    """The target's states after the last layer that tell the labels of a chunk, `[N, H]`."""
    size = learner.target.hidden_size
    return features[..., -size:].flatten(0, 1)[chunk - 1].to(learner.target.dtype)


@torch.no_grad()
def _beside(
    learner: Learner, chunk: Tensor, features: Tensor, objective: Objective
) -> Callable[[Tensor, int, Tensor, Tensor], Tensor] | None:
    """What the loss has beside distances of distributions, of the labels of a chunk; None for none.

    Arguments of the function: states `[N, F]`, their step, their logits, and the labels by number.
    """
    parts, target = objective.parts, learner.target
    if not {STATE, ADVERSARY} & parts.keys():
        return None
    last = _last(learner, chunk, features)
    true = target.family.finish(last[None])[0]
    real = target_probabilities(
        target.rows(last[None], "logits", None)[0], objective.temperature or 1.0, learner.tokens
    )

    def beside(states: Tensor, step: int, logits: Tensor, row: Tensor) -> Tensor:
        loss = logits.new_zeros(())
        if STATE in parts:
            own = learner.aligned(states, step).to(logits.dtype)
            loss = loss + parts[STATE] * state_loss(own, true[row].to(logits.dtype)).sum()
        if ADVERSARY in parts and torch.is_grad_enabled():
            if learner.adversary is None:
                raise UsageError("only heads are trained against an adversary", where="loss")
            judged = learner.adversary(real[row]), learner.adversary(against(logits.softmax(-1)))
            loss = loss + parts[ADVERSARY] * discriminator_loss(*judged).sum()
        return loss

    return beside


def _wanted(
    learner: Learner, rows: Rows, chunk: Tensor, features: Tensor, objective: Objective
) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of logits `[N, vocabulary]` on some labels `[N]` of a chunk, by their numbers."""
    target, known = learner.target, learner.tokens
    parts = {name: weight for name, weight in objective.parts.items() if name in LOSSES}
    tokens = rows.texts.tokens.flatten()[chunk]

    def loss(logits: Tensor, wanted: Tensor) -> Tensor:
        return sum(
            (weight * LOSSES[name](logits, wanted) for name, weight in parts.items()),
            logits.new_zeros(()),
        )

    if objective.temperature > 0.0 or not objective.answers:
        last = _last(learner, chunk, features)
        with torch.no_grad():
            logits = target.rows(last[None], "logits", None)[0]
            wanted = target_probabilities(logits, objective.temperature, known)
            tokens = logits.argmax(-1)
        if objective.temperature > 0.0:
            return lambda logits, row: loss(logits, wanted[row]).sum()
    if parts.keys() <= set(_HARD):
        total = sum(parts.values())
        if known is not None:
            own = torch.full((target.vocab_size,), _OF_NO_LABEL, device=target.device)
            own[known] = torch.arange(len(known), device=target.device)
            tokens = own[tokens]
        return lambda logits, row: (
            total
            * functional.cross_entropy(
                logits, tokens[row], ignore_index=_OF_NO_LABEL, reduction="sum"
            )
        )
    sure = functional.one_hot(tokens, target.vocab_size).to(target.logits_dtype)
    sure = sure if known is None else sure[:, known]
    return lambda logits, row: loss(logits, sure[row]).sum()
