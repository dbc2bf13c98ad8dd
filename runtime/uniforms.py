"""Uniform numbers that depend on the request alone, never on the rest of its batch.

A number is a pure function of (seed, stream, text length at the start of the round, index), so
there is no state, and batches, buckets and backends agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(
    seeds: Sequence[int], stream: str, text_lengths: Sequence[int], offset: int, count: int
) -> Tensor:
    """Draw `count` numbers per row from one stream.

    SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators") run from
    a state that hashes seed, stream and text length; the upper 53 bits make the float. Calls agree
    on overlaps: number i of offset o is number 0 of offset o + i.

    Args:
        seeds: per row, any integer; taken modulo 2**64.
        stream: name of the stream.
        text_lengths: per row, tokens of text (prompt and output) when the round began.
        offset: index of the first number within the round.
        count: numbers per row.

    Returns:
        float64 `[B, count]` in [0, 1), on the CPU.
    """
    seed = np.array([value % 2**64 for value in seeds], dtype=np.uint64)
    length = np.array(text_lengths, dtype=np.uint64)
    with np.errstate(over="ignore"):
        state = _mix(_mix(_mix(seed + _GOLDEN) ^ _stream_key(stream)) + length * _GOLDEN)
        index = np.arange(offset + 1, offset + count + 1, dtype=np.uint64)
        bits = _mix(state[:, None] + index * _GOLDEN)
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def position_uniforms(
    seeds: Sequence[int], stream: str, text_lengths: Sequence[int], offset: int, count: int
) -> Tensor:
    """`uniforms` of a stream that is keyed by positions of the text.

    A number depends on the seed, the stream and the place in the text alone, not on where a round
    began: number i of a round that began at length n is number 0 of one that began at n + i.
    """
    stream += " by position"
    places = range(offset, offset + count)
    columns = [uniforms(seeds, stream, [n + i for n in text_lengths], 0, 1) for i in places]
    return torch.cat(columns, 1)


def numbers_of(key: Literal["round", "position"]) -> Callable[..., Tensor]:
    """The function that draws from a stream of this key."""
    return position_uniforms if key == "position" else uniforms


def _mix(value: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64, a bijection of 64-bit integers."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = value ^ (value >> np.uint64(31))
    return mixed


@cache
def _stream_key(stream: str) -> np.uint64:
    digest = hashlib.sha256(stream.encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))
