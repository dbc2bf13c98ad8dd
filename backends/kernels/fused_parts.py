"""Which parts of a round have kernels, by head size, number type and rule; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specplan.backends.kernels import tiles
from specplan.backends.kernels.variants import DTYPES, NUMBER_TYPES, RULES


@dataclass(frozen=True)
class Heads:
    """The attention of a model, as far as kernels depend on it.

    Attributes:
        queries: query heads per layer.
        kv_heads: key/value heads per layer.
        size: entries of a head.
        dtype: number type of queries and caches, as torch names it.
        windowed: some layer attends to the last positions only.
    """

    queries: int
    kv_heads: int
    size: int
    dtype: str
    windowed: bool

    @property
    def word(self) -> str:
        """The number type in Triton's words; empty where kernels know none."""
        return NUMBER_TYPES.get(self.dtype, "")

    @property
    def attended(self) -> bool:
        """Whether there is a kernel for its attention to a tree."""
        return bool(self.word) and self.size in tiles.HEAD_DIMS and not self.windowed

    @property
    def moved(self) -> bool:
        """Whether there is a kernel that moves slots of its cache."""
        words, odd = divmod(self.size * DTYPES.get(self.word, 0), 4)
        return words > 0 and not odd and words == tiles.power_of_two(words)


@dataclass(frozen=True)
class Fused:
    """Parts of a round that are kernels of our own.

    Attributes:
        attention: models whose attention to a tree is one.
        moves: models in whose caches accepted paths are moved by one.
        rules: acceptance rules that are one.
        layers: number types, as torch names them, in which norms and gated activations are.
        joined: models whose rotation, writes to the cache and attention are one op of a runtime.
    """

    attention: frozenset[str] = frozenset()
    moves: frozenset[str] = frozenset()
    rules: frozenset[str] = frozenset()
    layers: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()

    @classmethod
    def of(cls, models: Mapping[str, Heads]) -> Fused:
        """All that there are kernels for, for models by the names that a plan gives them."""
        return cls(
            frozenset(name for name, heads in models.items() if heads.attended),
            frozenset(name for name, heads in models.items() if heads.moved),
            frozenset(RULES),
            frozenset(heads.dtype for heads in models.values() if heads.word),
        )


NOTHING = Fused()
