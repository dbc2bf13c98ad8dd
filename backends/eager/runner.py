"""What passes ask of whoever runs them: eagerly on a batch, or while a graph is traced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.tensors.values import Tree
from specplan.runtime.models.modules import Module


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


class Runner(Protocol):
    """Whoever runs passes: eagerly, or while a graph is traced.

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
