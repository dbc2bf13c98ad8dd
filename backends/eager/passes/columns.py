"""Columns of a pass, what it gives of them, and what passes read of the runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specplan.backends.eager.passes.levels import Slots
from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.runtime.models.modules import Module


@dataclass(frozen=True)
class Columns:
    """Columns of a pass, those of text first.

    Attributes:
        tokens: int64 `[B, T]`.
        positions: int64 `[B, T]`.
        live: bool `[B, T]`.
        texts: how many are of text.
        inner: drafted nodes, operand by operand.
        used: slots of text that are attended to.
        rooted: the root is one of the drafted nodes, and no column of text.
        slots: which of the last columns look ahead of nodes; None for none.
    """

    tokens: Tensor
    positions: Tensor
    live: Tensor
    texts: int
    inner: tuple[Nodes, ...]
    used: int
    slots: Slots | None = None
    rooted: bool = False


@dataclass(frozen=True)
class Passed:
    """What a pass gave.

    Attributes:
        hidden: states after the last layer, `[B, T, hidden]`.
        live: which of them there are, bool `[B, T]`.
        steps: passes of its model that they went through, int64 `[B, T]`; None where it read no
            states.
        ahead: the same of what lies one token deeper, two tokens, and so on.
        context: slots that were attended to.
        sure: all nodes have run that were to.
    """

    hidden: Tensor
    live: Tensor
    steps: Tensor | None
    ahead: tuple[tuple[Tensor, Tensor], ...] = ()
    context: int = 0
    sure: bool = False


class Texts(Protocol):
    """Texts as a pass reads them.

    Attributes:
        text: int64 `[B, S + 1]`; the last column is that of dead lanes.
        tracks: hidden states of them, and of drafted nodes, by name.
    """

    text: Tensor
    tracks: dict[str, Track]

    @property
    def keys(self) -> Tensor:
        """Of the texts up to every token, int64 `[B, S + 1]`."""
        ...

    @property
    def size(self) -> int:
        """Requests, B."""
        ...

    @property
    def ends(self) -> Tensor:
        """Lengths of the texts, int64 `[B, 1]`."""
        ...

    @property
    def last(self) -> Tensor:
        """Positions of the last tokens of the texts, int64 `[B, 1]`."""
        ...

    def root(self, scores: torch.dtype | None) -> Tree:
        """The tree without drafted nodes, of the texts as they are now."""
        ...


class PassRunner(Protocol):
    """What runs passes: eagerly on a batch, or while a graph is traced.

    Attributes:
        constants: tensors of placements and widths that were made already.
        scores: of which type scores of nodes are; None where none are asked for.
    """

    constants: dict[tuple[int, int], tuple[Tensor, Tensor | None]]
    scores: torch.dtype | None

    @property
    def batch(self) -> Texts:
        """The texts."""
        ...

    @property
    def models(self) -> Mapping[str, Module]:
        """By their roles."""
        ...

    def taking_part(self) -> Tensor | None:
        """Which requests take part in the region that runs, bool `[B]`; None for all."""
        ...
