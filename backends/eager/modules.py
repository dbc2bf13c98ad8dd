"""What models offer that read hidden states of other models, or give other rows than logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from specplan.runtime.kv_cache import KVCache
from specplan.runtime.requests import Request


class Module(Protocol):
    """A drafter, judge or sentence model; it has all that a `CausalModel` says of itself, too.

    Attributes:
        num_layers: attention layers that write its cache; may be 0.
        optional_features: tokens whose state above is missing enter all the same.
    """

    num_layers: int
    optional_features: bool

    def new_cache(self, batch: int, capacity: int, queries: bool = False) -> KVCache:
        """See `specplan.runtime.models.CausalModel.new_cache`."""
        ...

    def outside(self, word: str, requests: Sequence[Request]) -> Tensor:
        """States that come with the requests, `[B, F]`: of a track whose layer is that word."""
        ...

    def enter(
        self,
        tokens: Tensor,
        positions: Tensor,
        features: Tensor | None,
        known: Tensor | None,
        steps: Tensor,
    ) -> Tensor:
        """What enters the first layer.

        Args:
            tokens: int64 `[B, T]`.
            positions: int64 `[B, T]`; those of columns that do not count may lie before the text.
            features: states of the tokens so many nodes above as the forward says, `[B, T, F]`,
                those of several layers joined; None where it reads none.
            known: bool `[B, T]`, which of them there are.
            steps: passes of this module that each state went through already, int64 `[B, T]`.

        Returns:
            `[B, T, hidden]`; new memory.
        """
        ...

    def hidden(self, *inputs: Any) -> Tensor:
        """See `specplan.runtime.models.CausalModel.hidden`; `features` is what `enter` gave."""
        ...

    def rows(self, hidden: Tensor, name: str, steps: Tensor | None) -> Tensor:
        """Rows of one kind.

        Args:
            hidden: states after the last layer, `[B, R, hidden]`.
            name: `logits`, `score` or another word of `gives=`.
            steps: as of `enter`, int64 `[B, R]`.

        Returns:
            `[B, R, V]` over the target's vocabulary, or `[B, R, 1]` of a score.
        """
        ...
