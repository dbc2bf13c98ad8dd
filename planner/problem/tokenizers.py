"""Comparing tokenizers as JSON, without the tokenizers library: vocabulary and merges.

Text is always encoded with the target's tokenizer; a draft model only has to give the same
meaning to the same token numbers, so normalisers and pre-tokenisers are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import read_json


@dataclass(frozen=True)
class TokenTable:
    """What gives token numbers their meaning.

    Attributes:
        tokens: token text by number, added tokens included.
        merges: byte-pair merges in order; empty for other kinds of tokenizer.
    """

    tokens: dict[int, str]
    merges: tuple[tuple[str, ...], ...]


def read_tokenizer(path: Path) -> TokenTable:
    """Read a tokenizer.json.

    Raises:
        UsageError: when the file is missing, is not JSON, or holds no vocabulary.
    """
    value = read_json(path, "tokenizer")
    try:
        model = value["model"]
        vocabulary = model["vocab"]
        if isinstance(vocabulary, dict):  # BPE, WordPiece, WordLevel
            tokens = {int(number): token for token, number in vocabulary.items()}
        else:  # Unigram: [token, score] pairs
            tokens = {number: entry[0] for number, entry in enumerate(vocabulary)}
        for added in value.get("added_tokens") or ():
            tokens[int(added["id"])] = added["content"]
        merges = tuple(_pair(merge) for merge in model.get("merges") or ())
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise UsageError(
            "the tokenizer has no readable vocabulary (model.vocab)",
            where=str(path),
            remedy="Save it again with the tokenizers library.",
        ) from error
    return TokenTable(tokens, merges)


def first_difference(target: TokenTable, draft: TokenTable) -> str:
    """The first token number or merge on which two tokenizers differ, in words; empty if none."""
    for number in sorted(target.tokens.keys() | draft.tokens.keys()):
        ours, theirs = target.tokens.get(number), draft.tokens.get(number)
        if ours != theirs:
            return (
                f"token {number} is {_shown(theirs)} for the draft model and {_shown(ours)} for "
                "the target"
            )
    pairs = zip_longest(target.merges, draft.merges)
    for index, (ours_pair, theirs_pair) in enumerate(pairs):
        if ours_pair != theirs_pair:
            return (
                f"merge {index} is {_shown(theirs_pair)} for the draft model and "
                f"{_shown(ours_pair)} for the target"
            )
    return ""


def _pair(merge: Any) -> tuple[str, ...]:
    """A merge, written `"a b"` or `["a", "b"]`."""
    return tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge)


def _shown(value: str | Sequence[str] | None) -> str:
    if value is None:
        return "missing"
    return repr(value if isinstance(value, str) else " ".join(value))
