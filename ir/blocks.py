"""Blocks of a model's stack, sets of them that a forward leaves out, and heads.

A block is the attention or the MLP of one layer, its norm included: `attn.3`, `mlp.4`, layers
counted from 0. One that is left out adds nothing to the residual stream. A head is one of keys and
values, with all its query heads: `head.3.1` is the second one of layer 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

ATTENTION, MLP, HEAD = "attn", "mlp", "head"
_BLOCK = re.compile(rf"({ATTENTION}|{MLP})\.(0|[1-9][0-9]{{0,5}})")
_HEAD = re.compile(rf"{HEAD}\.(0|[1-9][0-9]{{0,5}})\.(0|[1-9][0-9]{{0,5}})")


@dataclass(frozen=True, slots=True)
class Skips:
    """A set of blocks.

    Attributes:
        attentions: layers whose attention is in it, rising.
        mlps: layers whose MLP is in it, rising.
    """

    attentions: tuple[int, ...] = ()
    mlps: tuple[int, ...] = ()

    @classmethod
    def of(cls, attentions: Iterable[int] = (), mlps: Iterable[int] = ()) -> Skips:
        """The set of these attentions and MLPs, by layer."""
        return cls(tuple(sorted(set(attentions))), tuple(sorted(set(mlps))))

    @classmethod
    def read(cls, words: Iterable[str]) -> Skips:
        """The set of blocks by name, `attn.3` or `mlp.4`.

        Raises:
            ValueError: a word names no block.
        """
        return _read(tuple(words))

    @property
    def words(self) -> tuple[str, ...]:
        """The blocks by name in the order of the stack."""
        return tuple(f"{kind}.{layer}" for layer, kind in self._ordered())

    @property
    def short(self) -> str:
        """The blocks in a word: `a3m4` for `attn.3` and `mlp.4`."""
        return "".join(f"{kind[0]}{layer}" for layer, kind in self._ordered())

    @property
    def height(self) -> int:
        """Layers that a stack needs to have all of these blocks."""
        return max((*self.attentions, *self.mlps), default=-1) + 1

    def __len__(self) -> int:
        """Blocks."""
        return len(self.attentions) + len(self.mlps)

    def _ordered(self) -> Iterator[tuple[int, str]]:
        every = [(layer, ATTENTION) for layer in self.attentions]
        yield from sorted([*every, *((layer, MLP) for layer in self.mlps)])


NO_SKIPS = Skips()


def one_stack(
    spans: Sequence[tuple[int, int]], skips: Skips
) -> tuple[tuple[int, int] | None, Skips]:
    """Rising half-open spans of layers as one, and the blocks left out with those in between.

    Args:
        spans: none for all layers.
        skips: blocks that are left out in them.
    """
    if not spans:
        return None, skips
    gaps = [range(stop, start) for (_, stop), (start, _) in pairwise(spans)]
    between = tuple(chain.from_iterable(gaps))
    left = Skips.of(skips.attentions + between, skips.mlps + between)
    return (spans[0][0], spans[-1][1]), left


@lru_cache(maxsize=1024)
def read_heads(words: tuple[str, ...]) -> frozenset[tuple[int, int]]:
    """Layers and numbers of heads by name, `head.3.1`.

    Raises:
        ValueError: a word names no head.
    """
    places = [(word, _HEAD.fullmatch(word)) for word in words]
    for word, place in places:
        if place is None:
            raise ValueError(f'"{word}" names no head; heads are called head.3.1')
    return frozenset((int(place[1]), int(place[2])) for _, place in places if place is not None)


@lru_cache(maxsize=1024)
def _read(words: tuple[str, ...]) -> Skips:
    layers: dict[str, list[int]] = {ATTENTION: [], MLP: []}
    for word in words:
        block = _BLOCK.fullmatch(word)
        if block is None:
            raise ValueError(f'"{word}" names no block; blocks are called attn.3 or mlp.3')
        layers[block[1]].append(int(block[2]))
    return Skips.of(layers[ATTENTION], layers[MLP])
