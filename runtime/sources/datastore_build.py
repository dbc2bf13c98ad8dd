"""Build a datastore piece by piece; a stopped build keeps its finished pieces.

The tokens of a piece of the corpus, and the order of a shard, which is some pieces, are files of
their own, each written under a temporary name and renamed. Pieces are small, so that little is
lost; shards are large, as lookups search one after another. `datastore.json` comes last: without it
there is no datastore. Building again goes on with what is there. A corpus may be compacted, as in
CREST (Ho et al. 2024, arXiv 2408.04678; its ready trees are those of the source `trees`): the order
leaves out runs of tokens that are rare, which take most of the room and seldom match, and of common
ones keeps some occurrences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import UsageError
from specplan.ir.files import check_destination, read_json, write_json_atomic
from specplan.runtime.sources.datastore import ABOUT, SCHEMA_VERSION, Packing

SHARD_TOKENS = 1 << 25
"""Most tokens that are sorted together: it takes some 50 bytes each."""
PIECE_TOKENS = 1 << 22
"""Tokens that are read together, and lost where a build is killed."""
PLAN = "building.json"
Progress = Callable[[str, int, int], None]
Piece = Callable[[], Iterable[NDArray[Any]]]
"""Gives the tokens of one piece of the corpus, document by document."""


def build_datastore(
    folder: Path,
    pieces: list[Piece],
    vocabulary: int,
    corpus: str,
    progress: Progress,
    keep: int | None = None,
    common: int = 1,
    together: int = SHARD_TOKENS,
) -> dict[str, int]:
    """Sort a corpus into a datastore, or continue a build.

    Args:
        folder: of the datastore; made if missing.
        pieces: of the corpus, each with the tokens of its documents.
        vocabulary: tokens are below it.
        corpus: identity of the corpus.
        progress: called for every piece and every shard.
        keep: occurrences of one run of tokens, two keys long, that are kept; None for all.
        common: of a run of tokens, one key long, occurrences below which none is kept.
        together: most tokens of a shard, which is one piece at least.

    Returns:
        `tokens` of the corpus, `places` kept in the order, and `shards`.

    Raises:
        UsageError: the folder has another content, or a token is outside the vocabulary.
    """
    begun = {
        "corpus": corpus,
        "vocabulary": vocabulary,
        "pieces": len(pieces),
        "together": together,
        "keep": keep,
        "common": common,
    }
    _begin(folder, begun)
    packing, read = Packing(vocabulary), []
    for number, piece in enumerate(pieces):
        progress("pieces of the corpus", number, len(pieces))
        read.append(_piece(folder, number, piece, packing))
    progress("pieces of the corpus", len(pieces), len(pieces))
    shards, counts = _shards_of(read, together), []
    for number, shard in enumerate(shards):
        progress("sorting the corpus", number, len(shards))
        places = _order(folder, number, shard, packing, keep, common)
        counts.append((sum(read[piece] for piece in shard), places))
    progress("sorting the corpus", len(shards), len(shards))
    ends = _ends(folder, counts)
    tokens = sum(count for count, _ in counts)
    (folder / ABOUT).unlink(missing_ok=True)  # while files are replaced there is no datastore
    _join(folder, len(pieces), counts)
    about = {"schema_version": SCHEMA_VERSION, "tokens": tokens, "ends": ends}
    write_json_atomic(folder / ABOUT, begun | about)
    for path in [*folder.glob("*.shard"), folder / PLAN]:
        path.unlink()
    return {"tokens": tokens, "places": ends[-1], "shards": len(shards)}


def _begin(folder: Path, begun: dict[str, Any]) -> None:
    """Write the parameters of the build; refuse a folder with another datastore."""
    about = next((path for path in (folder / PLAN, folder / ABOUT) if path.is_file()), None)
    check_destination(folder, ABOUT if about is None else about.name, "datastore")
    folder.mkdir(parents=True, exist_ok=True)
    known = begun if about is None else read_json(about, "datastore")
    if {key: known.get(key) for key in begun} != begun:
        raise UsageError(
            "the folder holds a datastore of another corpus",
            where=str(folder),
            remedy="Choose another folder, or remove this one.",
        )
    write_json_atomic(folder / PLAN, {"schema_version": SCHEMA_VERSION} | begun)


def _ends(folder: Path, counts: list[tuple[int, int]]) -> list[int]:
    """Where the places of each shard end in the order; a shard of which nothing is kept is none."""
    ends = np.cumsum([places for _, places in counts if places], dtype=np.int64).tolist()
    if not ends:
        raise UsageError(
            "no run of tokens occurs often enough to be stored",
            where=str(folder),
            remedy="Give a longer corpus, or a smaller --common; in another folder.",
        )
    return list(map(int, ends))


def _shards_of(read: list[int], together: int) -> list[range]:
    """Consecutive pieces that are sorted together, by the tokens of each."""
    shards, start, size = [], 0, 0
    for number, count in enumerate(read):
        if size and size + count > together:
            shards.append(range(start, number))
            start, size = number, 0
        size += count
    return [*shards, range(start, len(read))] if read else []


def _piece(folder: Path, number: int, piece: Piece, packing: Packing) -> int:
    """Make the file of a piece unless it is there; its tokens."""
    path = _path(folder, "tokens", number)
    if not path.is_file():
        _write(path, [_joined(piece(), packing)])
    return path.stat().st_size // packing.dtype.itemsize


def _order(
    folder: Path, number: int, pieces: range, packing: Packing, keep: int | None, common: int
) -> int:
    """Make the files of a shard's order unless they are there; its places."""
    keys, places = (_path(folder, name, number) for name in ("keys", "places"))
    if not (keys.is_file() and places.is_file()):
        read = [np.fromfile(_path(folder, "tokens", piece), packing.dtype) for piece in pieces]
        near, order = _sorted(np.concatenate(read), packing, keep, common)
        _write(keys, [near])
        _write(places, [order])
    return keys.stat().st_size // 8


def _joined(documents: Iterable[NDArray[Any]], packing: Packing) -> NDArray[Any]:
    """Documents one after another, each with the number of no token behind it."""
    parts: list[NDArray[Any]] = []
    none = np.array([packing.vocabulary], dtype=packing.dtype)
    for document in documents:
        if len(document) and not 0 <= int(document.min()) <= int(document.max()) < none[0]:
            raise UsageError(
                f"the corpus has tokens outside the vocabulary of {packing.vocabulary}",
                remedy="Build it with the target's tokenizer.",
            )
        parts += [document.astype(packing.dtype), none]
    return np.concatenate(parts) if parts else none


def _sorted(
    tokens: NDArray[Any], packing: Packing, keep: int | None, common: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """First keys and places of a shard, by the tokens before each place, the nearest first."""
    packed = packing.tokens
    near, far = (_contexts(tokens, packing, first) for first in (0, packed))
    order = np.argsort(far, kind="stable")
    order = order[np.argsort(near[order], kind="stable")]
    ends = tokens[order] == packing.vocabulary  # nothing follows the end of a document
    order = order[~ends]
    near, far = near[order], far[order]
    if common > 1:
        some = _group_sizes(near)[1] >= common
        order, near, far = order[some], near[some], far[some]
    if keep is not None:
        rank, size = _group_sizes(near, far)
        some = rank * keep // size != (rank - 1) * keep // size  # evenly, and all where they fit
        order, near = order[some], near[some]
    return near, order.astype(np.uint32)


def _contexts(tokens: NDArray[Any], packing: Packing, first: int) -> NDArray[np.uint64]:
    """Keys of the tokens that stand `first` + 1 and more before each place."""
    keys = np.zeros(len(tokens), dtype=np.uint64)
    for place in range(first, first + packing.tokens):
        keys <<= np.uint64(packing.bits)
        keys[: place + 1] |= np.uint64(packing.vocabulary)
        keys[place + 1 :] |= tokens[: -place - 1].astype(np.uint64)
    return keys


def _group_sizes(*keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each entry, its place among neighbours with equal keys, and how many these are."""
    new = np.ones(len(keys[0]), dtype=np.bool_)
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, len(new)))
    rank = np.arange(len(new)) - np.repeat(starts, sizes)
    return rank, np.repeat(sizes, sizes)


def _join(folder: Path, pieces: int, counts: list[tuple[int, int]]) -> None:
    """The files of pieces and shards as one each; places count from the corpus's first token."""
    for name, count in (("tokens", pieces), ("keys", len(counts))):
        parts = (np.fromfile(_path(folder, name, n), dtype=np.uint8) for n in range(count))
        _write(folder / f"{name}.bin", parts)
    starts = np.cumsum([0, *(tokens for tokens, _ in counts)])
    if starts[-1] >= 1 << 32:
        raise UsageError("a datastore holds fewer than 2^32 tokens", where=str(folder))
    moved = (
        np.fromfile(_path(folder, "places", number), dtype="<u4") + np.uint32(starts[number])
        for number in range(len(counts))
    )
    _write(folder / "places.bin", moved)


def _path(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:05d}.shard"


def _write(path: Path, parts: Iterable[NDArray[np.generic]]) -> None:
    """Write arrays one after another under a temporary name, then rename."""
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        for part in parts:
            part.tofile(file)
    temporary.replace(path)
