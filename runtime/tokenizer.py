"""Tokenizers from local files, and text that streams without half characters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specplan.cost_models.models.model_shape import is_gguf
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json

_INCOMPLETE = "�"
"""Decoders put this in place of bytes that are no character yet."""


class Tokenizer:
    """Text to tokens and back.

    Attributes:
        backend: the `transformers` tokenizer.
        stop_tokens: ids that end a text, from generation_config.json or else the tokenizer.
    """

    def __init__(self, backend: Any, stop_tokens: tuple[int, ...] = ()) -> None:
        self.backend = backend
        self.stop_tokens = stop_tokens

    @property
    def size(self) -> int:
        """Ids known, added tokens included."""
        return len(self.backend)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text, with the tokenizer's own special tokens around it if `special`."""
        return list(self.backend.encode(text, add_special_tokens=special))

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special tokens left out."""
        return str(
            self.backend.decode(
                list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )


class StreamDecoder:
    """Decode token by token; the pieces joined are the decoding of the whole.

    A piece never ends inside a character: bytes that do not yet make one are held back. Decoders
    that look at the token before (leading spaces) see the tokens of the last piece again.

    Args:
        tokenizer: of the tokens.
        context: tokens before the first one, such as the prompt; not part of the output.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(context[-8:])
        self._start = 0
        self._read = len(self._tokens)
        # Half a character at the end of the prompt is completed, and shown, by the output.
        self._before = tokenizer.decode(self._tokens).rstrip(_INCOMPLETE)

    def feed(self, token: int) -> str:
        """The text that this token completes, often a part of a word, perhaps nothing."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens[self._start :])
        if text.endswith(_INCOMPLETE) or len(text) <= len(self._before):
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """The text still held back, with replacement characters for broken bytes."""
        return self._advance(self._tokenizer.decode(self._tokens[self._start :]))

    def _advance(self, text: str) -> str:
        piece = text[len(self._before) :]
        self._start, self._read = self._read, len(self._tokens)
        self._before = self._tokenizer.decode(self._tokens[self._start :])
        return piece


class StopStrings:
    """Watch a stream for stop strings; hold back what may become one.

    The text ends before the stop string that is completed first, and of those completed at once
    before the longest. The outcome does not depend on how the stream is cut into pieces.

    Args:
        strings: stop strings; may be empty.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._pending = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Take a piece and return what can be shown; sets `stopped`."""
        if not self._strings or self.stopped:
            return "" if self.stopped else piece
        text = self._pending + piece
        ends = [
            (place + len(string), place)
            for string in self._strings
            if (place := text.find(string)) >= 0
        ]
        if ends:
            self.stopped = True
            self._pending = ""
            return text[: min(ends)[1]]
        keep = max(_overlap(text, string) for string in self._strings)
        self._pending = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The text held back, which became no stop string."""
        pending, self._pending = self._pending, ""
        return pending


def _overlap(text: str, string: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `string`."""
    for size in range(min(len(text), len(string) - 1), 0, -1):
        if text.endswith(string[:size]):
            return size
    return 0


def load_tokenizer(folder: Path | str) -> Tokenizer:
    """Load the tokenizer of a checkpoint folder, from local files only.

    That of a GGUF file is the tokenizer.json beside it, or else what the file describes.

    Raises:
        UsageError: the folder or file has none that can be read.
    """
    folder, given = Path(folder), dict[str, Any]()
    if is_gguf(folder):
        beside = (folder.parent / "tokenizer.json").is_file()
        folder, given = folder.parent, {} if beside else {"gguf_file": folder.name}
    if not folder.is_dir():  # the library would take the name for one of its hub
        raise UsageError(
            "there is no such folder", where=str(folder), remedy="Name that of a checkpoint."
        )
    from transformers import AutoTokenizer

    try:
        backend = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, **given
        )
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise UsageError(
            f"cannot load a tokenizer ({error})",
            where=str(folder / given.get("gguf_file", "")),
            remedy="The folder needs tokenizer.json and tokenizer_config.json.",
        ) from error
    return Tokenizer(backend, _stop_tokens(folder, backend))


def _stop_tokens(folder: Path, backend: Any) -> tuple[int, ...]:
    path = folder / "generation_config.json"
    stops = read_json(path, "generation config").get("eos_token_id") if path.exists() else None
    if stops is None:
        stops = backend.eos_token_id
    if stops is None:
        return ()
    return tuple(stops) if isinstance(stops, list) else (int(stops),)
