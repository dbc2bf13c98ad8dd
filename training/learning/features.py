"""The target's hidden states along texts: computed once for each row, and remembered."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from specplan.measure.acceptance.heads import text_features
from specplan.runtime.models.heads.drafter import Drafter
from specplan.training.learning.objective import Objective
from specplan.training.learning.packing import Rows, Text, rows_of

MOST_BYTES = 2 << 30
"""Memory of states that are remembered; those of further rows are computed anew in every pass."""


class Features:
    """States of rows of texts.

    A row's states are those of the row alone, so that they are the same bits whatever stands
    beside it and whether they were remembered or not.

    Args:
        head: whose reads they are.
        groups: texts by row.
        objective: how they are computed, and whether the states after the last layer are needed.
        most_bytes: that are remembered.
    """

    def __init__(
        self,
        head: Drafter,
        groups: Sequence[Sequence[Text]],
        objective: Objective,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.head, self.groups, self.objective = head, groups, objective
        reads, last = head.description.reads.layers, head.target.num_layers
        self.layers = reads or (last,)
        if objective.reads_target and reads:
            self.layers = (*reads, last)
        self.known: dict[int, Tensor] = {}
        self.room = most_bytes

    def rows(self, numbers: Sequence[int]) -> tuple[Rows, Tensor]:
        """Some rows as one pass, and the states at their tokens, `[B, T, F]`."""
        rows = rows_of([self.groups[number] for number in numbers])
        length = rows.texts.tokens.shape[1]
        states = [self._of(number) for number in numbers]
        together = torch.stack([pad(one, (0, 0, 0, length - len(one))) for one in states])
        return rows, together.to(self.head.dtype)

    @torch.no_grad()
    def _of(self, number: int) -> Tensor:
        """States of a row, `[T, F]`, in the type that the objective computes in."""
        if number in self.known:
            return self.known[number]
        texts = rows_of([self.groups[number]]).texts
        with self.objective.products(self.head):
            states = text_features(self.head.target, texts, self.layers)[0]
        states = states.to(self.objective.compute)
        size = states.numel() * states.element_size()
        if size <= self.room:
            self.room -= size
            self.known[number] = states
        return states
