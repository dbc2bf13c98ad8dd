"""Datastores from a corpus: a text file and a tokenizer, or token ids."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specplan.ir.errors import UsageError
from specplan.ir.files import check_destination, read_json, sha256_file
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.runtime.sources import datastore_build as building
    from specplan.runtime.tokenizer import Tokenizer

TEXT_PIECE = 1 << 24
"""Bytes of text that are read together, and lost where a build is killed."""
_DOCUMENT, _TOGETHER = 1 << 13, 256
"""Bytes of text between lines at which a document may end; documents that are encoded together."""


def build_datastore(
    corpus: Path | str,
    out: Path | str,
    tokenizer: Path | str,
    *,
    keep: int | None = None,
    common: int = 1,
    trees: int | None = None,
    progress: Progress = silent,
) -> dict[str, int]:
    """Make a datastore, or go on with one whose making was stopped.

    Args:
        corpus: a UTF-8 text, or token ids as a one-dimensional `.npy`.
        out: folder for it.
        tokenizer: folder of the target's checkpoint; of token ids only its config is read.
        keep: occurrences of one long run of tokens that are kept; None for all.
        common: of a short run, occurrences below which none is kept.
        trees: runs of tokens that get a ready tree, the commonest; None for no trees.
        progress: told of bytes and pieces read, and of shards sorted.

    Returns:
        `tokens`, `places` kept in the order, and `shards`; and `trees` made.

    Raises:
        UsageError: the corpus is neither, or `out` holds a datastore of another one or other files.
    """
    from specplan.runtime.sources import datastore_build as building

    corpus, folder = Path(corpus), Path(tokenizer)
    pieces, vocabulary = _pieces(corpus, folder, progress), _vocabulary(folder)
    counts = building.build_datastore(
        Path(out), pieces, vocabulary, sha256_file(corpus), progress, keep, common
    )
    if trees is None:
        return counts
    from specplan.runtime.sources.trees import build_trees

    return counts | {"trees": build_trees(Path(out), trees)}


def build_states(
    corpus: Path | str,
    out: Path | str,
    target: Path | str,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    window: int = 512,
    progress: Progress = silent,
    **how: Any,
) -> dict[str, int]:
    """Make a store of a target's hidden states over a corpus.

    Args:
        corpus: see `build_datastore`; token ids are one document.
        out: folder for it.
        target: folder of the checkpoint that runs over the corpus.
        dtype: in which number type it runs.
        device: a torch device.
        window: tokens that are read together.
        progress: told of bytes of text read.
        how: of `specplan.cost_models.models.heads.neighbours.store_config`.

    Returns:
        `states`, `documents` and `bytes`.

    Raises:
        UsageError: the corpus is neither, or no text of the target, or `out` holds other files.
    """
    from specplan.cost_models.models.heads.neighbours import is_store_folder
    from specplan.runtime.models.loading import load_model
    from specplan.runtime.models.neighbours.building import build_neighbours

    if not is_store_folder(out):
        check_destination(Path(out), "config.json", "store of states")
    pieces = _pieces(Path(corpus), Path(target), progress)
    model = load_model(target, dtype=dtype, device=device)
    documents = (document for piece in pieces for document in piece())
    return build_neighbours(Path(out), model, documents, window=window, **how)


def _pieces(corpus: Path, tokenizer: Path, progress: Progress) -> list[building.Piece]:
    """Parts of a corpus that are read together."""
    from specplan.runtime.sources.datastore_build import PIECE_TOKENS

    if not corpus.is_file():
        raise UsageError("there is no such corpus", where=str(corpus), remedy="Name a file.")
    if corpus.stat().st_size == 0:
        raise UsageError("the corpus is empty", where=str(corpus))
    if corpus.suffix == ".npy":
        ids = _token_ids(corpus)
        starts = range(0, len(ids), PIECE_TOKENS)
        return [partial(_slice, ids, start, PIECE_TOKENS) for start in starts]
    _check_text(corpus)
    from specplan.runtime.tokenizer import load_tokenizer

    encoder = load_tokenizer(tokenizer)
    starts = range(0, corpus.stat().st_size, TEXT_PIECE)
    return [partial(_encoded, corpus, start, encoder, progress) for start in starts]


def _check_text(corpus: Path) -> None:
    """Refuse what is no text before anything is written: a binary file would be indexed too."""
    decoder, place = codecs.getincrementaldecoder("utf-8")(), 0
    with corpus.open("rb") as file:
        while True:
            read = file.read(TEXT_PIECE)
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(read, final=not read)
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"the corpus is no UTF-8 text: byte {place - pending + error.start}",
                    where=str(corpus),
                    remedy="Convert it (iconv -t UTF-8), or give token ids as .npy.",
                ) from error
            if not read:
                return
            place += len(read)


def _vocabulary(checkpoint: Path) -> int:
    from transformers import AutoConfig

    path = checkpoint / "config.json"
    read_json(path, "config")  # says more of what is broken
    try:
        config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=False)
        return int(config.get_text_config().vocab_size)
    except (AttributeError, KeyError, ValueError, OSError) as error:
        words = (str(error).strip().splitlines() or ["?"])[0]
        raise UsageError(f"the config tells of no vocabulary: {words}", where=str(path)) from error


def _token_ids(corpus: Path) -> Any:
    try:
        ids = np.load(corpus, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise UsageError(f"this is no array ({error})", where=str(corpus)) from error
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer) or not len(ids):
        raise UsageError(
            f"token ids are one row of whole numbers, this is {ids.dtype} {list(ids.shape)}",
            where=str(corpus),
        )
    return ids


def _slice(ids: Any, start: int, size: int) -> Iterator[Any]:
    yield np.asarray(ids[start : start + size])


def _encoded(corpus: Path, start: int, tokenizer: Tokenizer, progress: Progress) -> Iterator[Any]:
    """Tokens of the documents that begin in `TEXT_PIECE` bytes from `start` on."""
    total = corpus.stat().st_size
    waiting: list[str] = []
    for place, document in _documents(corpus, start):
        waiting.append(document)
        if len(waiting) == _TOGETHER:
            progress("reading the corpus", place, total)
            yield from _tokens(waiting, tokenizer)
            waiting = []
    progress("reading the corpus", min(start + TEXT_PIECE, total), total)
    yield from _tokens(waiting, tokenizer)


def _tokens(documents: list[str], tokenizer: Tokenizer) -> Iterable[Any]:
    if not documents:
        return
    encoded = tokenizer.backend(documents, add_special_tokens=False)["input_ids"]
    for ids in encoded:
        yield np.array(ids, dtype=np.int64)


def _documents(corpus: Path, start: int) -> Iterator[tuple[int, str]]:
    """Where each document ends, and its text: whole lines, some `_DOCUMENT` bytes."""
    with corpus.open("rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()  # it belongs to what comes before
        place, end = file.tell(), start + TEXT_PIECE
        while place < end:
            first, lines = place, list[bytes]()
            # a line that begins behind the end belongs to the next piece
            while place < min(end, first + _DOCUMENT) and (line := file.readline()):
                lines.append(line)
                place += len(line)
            if not lines:
                return
            yield place, b"".join(lines).decode("utf-8")
