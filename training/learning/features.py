"""The target's hidden states along texts: computed once for each row, and remembered."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from specplan.measure.acceptance.heads import text_features
from specplan.training.learning.learner import Learner
from specplan.training.learning.objective import Objective
from specplan.training.learning.packing import Rows, Text, rows_of

MOST_BYTES = 2 << 30
"""Memory of states that are remembered; those of further rows are computed anew in every pass."""


class Features:
    """States of rows of texts.

    A row's states are those of the row alone, so that they are the same bits whatever stands
    beside it and whether they were remembered or not.

    Args:
        learner: whose reads they are.
        groups: texts by row.
        objective: how they are computed, and whether the states after the last layer are needed.
        most_bytes: that are remembered.
    """

    def __init__(
        self,
        learner: Learner,
        groups: Sequence[Sequence[Text]],
        objective: Objective,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.target, self.groups, self.objective = learner.target, groups, objective
        reads, last = learner.reads, (learner.target.num_layers,)
        self.layers = (*reads, *last) if objective.reads_target and reads != last else reads
        self.known: dict[int, Tensor] = {}
        self.room = most_bytes

    def rows(self, numbers: Sequence[int]) -> tuple[Rows, Tensor]:
        """Some rows as one pass, and the states at their tokens, `[B, T, F]`."""
        states = [self._of(number) for number in numbers]
        return self._together([self.groups[number] for number in numbers], states)

    def of_others(self, groups: Sequence[Sequence[Text]]) -> tuple[Rows, Tensor]:
        """Rows of other texts, which are not remembered."""
        return self._together(groups, [self._computed(group) for group in groups])

    def _together(
        self, groups: Sequence[Sequence[Text]], states: Sequence[Tensor]
    ) -> tuple[Rows, Tensor]:
        rows = rows_of(groups).to(self.target.device)
        length = rows.texts.tokens.shape[1]
        together = torch.stack([pad(one, (0, 0, 0, length - len(one))) for one in states])
        return rows, together.to(self.target.dtype)

    def _of(self, number: int) -> Tensor:
        """States of a row, `[T, F]`, in the type that the objective computes in."""
        if number in self.known:
            return self.known[number]
        states = self._computed(self.groups[number])
        size = states.numel() * states.element_size()
        if size <= self.room:
            self.room -= size
            self.known[number] = states
        return states

    @torch.no_grad()
    def _computed(self, group: Sequence[Text]) -> Tensor:
        texts = rows_of([group]).to(self.target.device).texts
        with self.objective.products(self.target):
            states = text_features(self.target, texts, self.layers)[0]
        return states.to(self.objective.compute)
