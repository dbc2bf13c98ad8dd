"""What a training trains: the interface of heads, draft models and exits of the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from specplan.ir.errors import UsageError
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.text_attention import Texts
from specplan.training.learning.objective import Objective, loss_of
from specplan.training.learning.packing import Labels, Rows

if TYPE_CHECKING:
    from specplan.training.learning.features import Features


class Learner(ABC):
    """A drafter with weights that are trained along the texts of its target.

    Attributes:
        module: its weights.
        target: that it drafts for, whose number type and device it has.
        reads: after how many of the target's layers it reads hidden states; empty for none.
        begins: the first token of a text that can be a root.
        tokens: the target's ids of its vocabulary, int64 `[vocabulary]`; None for all.
        vocabulary: entries of its logits.
        blocks: it learns from some roots of a row in a step, and not from all.
        identity: what a training must go on with, by name.
        adversary: tells distributions `[N, vocabulary]` of the target from those of the drafter, by
            a logit `[N]`; a part of the module; None unless the loss has one.
        rates: part of the learning rate at which weights with something in their name learn.
    """

    module: nn.Module
    target: CausalModel
    reads: tuple[int, ...] = ()
    begins: int = 0
    tokens: Tensor | None = None
    vocabulary: int
    blocks: bool = False
    identity: Mapping[str, Any]
    rates: Mapping[str, float] = {}
    adversary: nn.Module | None = None

    @property
    def width(self) -> int:
        """Of the hidden states that it reads at a token."""
        return len(self.reads) * self.target.hidden_size

    @abstractmethod
    def states(self, texts: Texts, features: Tensor, steps: int, roots: Tensor) -> Iterator[Tensor]:
        """What its logits are computed from, for each step `[B, R, F]`.

        Args:
            texts: of the rows, `[B, T]`.
            features: the target's states that it reads, `[B, T, width]`.
            steps: tokens ahead.
            roots: int64 `[B, R]`, the tokens from which it looks ahead.
        """

    @abstractmethod
    def logits(self, states: Tensor, step: int) -> Tensor:
        """Logits `[N, vocabulary]` of states `[N, F]` of a step."""

    def aligned(self, states: Tensor, step: int) -> Tensor:
        """The part of states `[N, F]` of a step that is to be the target's own state, `[N, H]`.

        Raises:
            UsageError: there is none.
        """
        raise UsageError(
            "this drafter has no states that approximate the target's",
            where="loss",
            remedy="Leave the part `state` out.",
        )

    def rows(self, features: Features, numbers: Sequence[int], step: int) -> tuple[Rows, Tensor]:
        """The rows of a step of the training, and the target's states at their tokens."""
        return features.rows(numbers)

    def loss(
        self, rows: Rows, labels: Labels, features: Tensor, objective: Objective, totals: Tensor
    ) -> Tensor:
        """The loss of a step, whose gradients are added to those of its weights.

        Arguments are those of `specplan.training.learning.objective.loss_of`.
        """
        return loss_of(self, rows, labels, features, objective, totals)

    @property
    @abstractmethod
    def drafter(self) -> Any:
        """What the runtime drafts with, with the weights as they are."""

    def trains(self, training: bool) -> None:
        """Gradients of its weights are needed, or are not."""
        self.module.requires_grad_(training).train(training)

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write its checkpoint, in the form that engines load."""

    @abstractmethod
    def read(self, folder: Path) -> None:
        """Take the weights of a checkpoint that `write` wrote."""
