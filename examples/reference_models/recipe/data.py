"""Token streams and the order in which training reads them.

The order is a pure function of the seed and the position, so a resumed run needs to remember one
number only: how many windows it has read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from recipe import corpus
from recipe.bpe import END_OF_TEXT

Tokens = npt.NDArray[np.uint16]

MIX = {"code": 0.68, "tests": 0.16, "prose": 0.16}
"""Share of the training windows that each stream gives."""
FUNCTIONS_MIX = {"functions": 0.45, "code": 0.30, "tests": 0.09, "prose": 0.16}
"""The same while both models learn on with functions as documents of their own."""


def encode_stream(tokenizer: Tokenizer, texts: list[str], seed: int) -> Tokens:
    """Encode documents in a seeded order, each followed by ``<|endoftext|>``, as one stream."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    order = np.random.default_rng(seed).permutation(len(texts))
    if not texts:
        return np.zeros(0, dtype=np.uint16)
    pieces = [[*e.ids, end] for e in tokenizer.encode_batch([texts[i] for i in order])]
    return np.concatenate([np.asarray(p, dtype=np.uint16) for p in pieces])


TRAINED = ("code", "tests", "prose", "functions")
STREAMS = (*TRAINED, "heldout_code", "heldout_prose")


def complete(cache: Path) -> bool:
    """Whether every stream has been encoded."""
    return all((cache / f"{name}.npy").exists() for name in STREAMS)


def write_streams(
    cache: Path, tokenizer: Tokenizer, files: list[corpus.SourceFile], seed: int
) -> None:
    """Encode the train streams and the held-out ones (``heldout_code``, ``heldout_prose``)."""
    sources = {
        "code": lambda: corpus.documents(files, "train", ("stdlib",)),
        "tests": lambda: corpus.documents(files, "train", ("tests",)),
        "prose": lambda: corpus.prose_documents(files, "train"),
        "functions": lambda: corpus.function_documents(files, "train"),
        "heldout_code": lambda: corpus.documents(files, "heldout", ("stdlib",)),
        "heldout_prose": lambda: corpus.documents(files, "heldout", ("topics",)),
    }
    cache.mkdir(parents=True, exist_ok=True)
    for name in STREAMS:
        temporary = cache / f"{name}.tmp.npy"
        np.save(temporary, encode_stream(tokenizer, sources[name](), seed), allow_pickle=False)
        temporary.replace(cache / f"{name}.npy")


def read_streams(cache: Path) -> dict[str, Tokens]:
    """Read the encoded streams that are not empty."""
    streams = {name: np.load(cache / f"{name}.npy", allow_pickle=False) for name in STREAMS}
    return {name: s for name, s in streams.items() if len(s) > 0}


@dataclass
class WindowOrder:
    """Which window of which stream the n-th training sequence is.

    A stream is cut in windows of ``unit`` tokens, permuted anew in each pass over it; the cut is
    shifted by a random offset in each pass so that windows do not repeat exactly.
    """

    streams: dict[str, Tokens]
    unit: int
    seed: int
    capacity: int
    mix: dict[str, float] = field(default_factory=lambda: MIX)

    def __post_init__(self) -> None:
        streams, unit = self.streams, self.unit
        self.names = [n for n in self.mix if n in streams and len(streams[n]) > 2 * unit]
        share = np.array([self.mix[n] for n in self.names])
        rng = np.random.default_rng([self.seed, 1])
        self.choice = rng.choice(len(self.names), size=self.capacity, p=share / share.sum())
        self.rank = np.zeros(self.capacity, dtype=np.int64)
        for k in range(len(self.names)):
            mine = self.choice == k
            self.rank[mine] = np.arange(int(mine.sum()))
        self._passes: dict[tuple[int, int], tuple[int, npt.NDArray[np.int64]]] = {}

    def _pass(self, k: int, number: int) -> tuple[int, npt.NDArray[np.int64]]:
        if (k, number) not in self._passes:
            rng = np.random.default_rng([self.seed, 2, k, number])
            offset = int(rng.integers(self.unit))
            count = self._count(k)
            self._passes[(k, number)] = (offset, rng.permutation(count))
        return self._passes[(k, number)]

    def _count(self, k: int) -> int:
        return (len(self.streams[self.names[k]]) - self.unit - 1) // self.unit

    def window(self, n: int) -> Tokens:
        """The n-th window: ``unit + 1`` tokens, inputs and shifted targets together."""
        k = int(self.choice[n % self.capacity])
        number, place = divmod(int(self.rank[n % self.capacity]), self._count(k))
        offset, order = self._pass(k, number)
        start = offset + int(order[place]) * self.unit
        return self.streams[self.names[k]][start : start + self.unit + 1]

    def batch(self, first: int, rows: int, length: int) -> torch.Tensor:
        """``rows`` sequences of ``length + 1`` tokens; a longer one goes on where its window ends.

        Positions count windows of ``unit`` tokens: a batch reads ``rows`` of them.
        """
        out = np.zeros((rows, length + 1), dtype=np.int64)
        for r in range(rows):
            n = first + r
            k = int(self.choice[n % self.capacity])
            number, place = divmod(int(self.rank[n % self.capacity]), self._count(k))
            offset, order = self._pass(k, number)
            stream = self.streams[self.names[k]]
            start = min(offset + int(order[place]) * self.unit, len(stream) - length - 1)
            out[r] = stream[start : start + length + 1]
        return torch.from_numpy(out)


def heldout_windows(stream: Tokens, length: int, count: int) -> torch.Tensor:
    """``count`` evenly spread held-out windows of ``length + 1`` tokens, always the same ones."""
    last = len(stream) - length - 1
    starts = np.unique(np.linspace(0, max(last, 0), num=count).astype(np.int64))
    rows = [stream[s : s + length + 1].astype(np.int64) for s in starts]
    return torch.from_numpy(np.stack(rows))
