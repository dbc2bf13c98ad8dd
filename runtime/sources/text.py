"""Prompt lookup: the tokens that followed the latest occurrence of a text's last tokens in it.

Prompt lookup decoding (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding) and LLMA
(arXiv 2304.04487). It runs on the host and has no state but the text.
"""

from __future__ import annotations

import numpy as np

from specplan.ir.values import TEXT_STATE
from specplan.runtime.sources.continuations import continuation_trees
from specplan.runtime.sources.source import SourceDrafts, Tokens, Wanted

TEXT_MATCH = (1, 3)
"""Default shortest and longest suffix to match, in tokens."""


def lookup(text: Tokens, *, shortest: int, longest: int, length: int) -> Tokens:
    """Tokens that followed the most recent earlier occurrence of the text's longest known suffix.

    Suffixes of `longest` tokens are tried first, then shorter ones down to `shortest`; no suffix at
    all, where `shortest` is 0, is followed by the text from its first token. Where the
    continuation reaches the end of the text it goes on with itself, as copies in LZ77 do (Ziv and
    Lempel 1977): a text that repeats is proposed to go on repeating, and what is proposed first
    does not depend on `length`. The stock implementation of transformers takes the first
    occurrence and ends with the text.

    Args:
        text: int64 `[n]`, prompt and output so far.
        shortest: fewest tokens to match; 0 proposes the beginning of the text without a match.
        longest: most tokens to match.
        length: tokens to propose.

    Returns:
        int64 `[length]`, or empty when no suffix occurs earlier.
    """
    return longest_match(text, shortest=shortest, longest=longest, length=length)[1]


def longest_match(text: Tokens, *, shortest: int, longest: int, length: int) -> tuple[int, Tokens]:
    """Tokens of the suffix that `lookup` matches, and what it gives."""
    size = len(text)
    known = _occurrences(text, shortest, longest)
    if known:
        period = size - int(known[0][-1])
        copied = text[size - period + np.arange(length) % period]
        return max(shortest, 1) + len(known) - 1, copied
    return 0, text[np.arange(length) % size] if shortest == 0 and size else text[:0]


def match_of(source: str, match: tuple[int, ...] | None) -> tuple[int, ...]:
    """Shortest and longest suffix that a `lookup` matches, by default where it names none."""
    return match or (TEXT_MATCH if source == TEXT_STATE else (1, 1))


def continuations(text: Tokens, wanted: Wanted) -> SourceDrafts:
    """Several continuations of one text, merged, or side by side with different first tokens.

    Longer matches come first, then later ones; the first continuation is that of `lookup`, and
    each goes on as that does. Where nodes of a merged tree are equally common, those of earlier
    continuations come first.

    Args:
        text: int64 `[n]`.
        wanted: limits.
    """
    size, merged = len(text), wanted.nodes is not None
    by_start: dict[int, int] = {}
    for known in _occurrences(text, wanted.shortest, wanted.longest):
        for end in reversed(known.tolist()):
            by_start.setdefault(end if merged else int(text[end]), end)
            if len(by_start) == wanted.children:
                break
    if wanted.shortest == 0 and size:
        by_start.setdefault(0 if merged else int(text[0]), 0)
    ends = [*by_start.values()][: wanted.children]
    runs = [text[end + np.arange(wanted.length) % (size - end)] for end in ends]
    if merged:
        earlier = np.arange(len(runs), 0, -1) / (len(runs) + 1.0) ** 2  # less than one in all
        tokens = np.array(runs, dtype=np.int64).reshape(-1, wanted.length)
        return continuation_trees(tokens, np.zeros(len(runs), np.int64), 1, wanted, 1.0 + earlier)
    drafts = SourceDrafts.nothing(1, wanted)
    for place, run in enumerate(runs):
        slots = slice(place * wanted.length, (place + 1) * wanted.length)
        drafts.tokens[0, slots], drafts.live[0, slots] = run, True
    return drafts


def _occurrences(text: Tokens, shortest: int, longest: int) -> list[Tokens]:
    """Ends (exclusive), ascending, of earlier occurrences of suffixes, longest suffix first.

    Suffixes that occur nowhere else are left out.
    """
    known = list[Tokens]()
    # Shorter ones first: a longer suffix can only occur where they do.
    ends = np.flatnonzero(text[:-1] == text[-1:]) + 1
    for order in range(1, min(longest, len(text) - 1) + 1):
        if order > 1:
            if ends[0] < order:
                ends = ends[ends >= order]
            ends = ends[text[ends - order] == text[-order]]
        if not len(ends):
            break
        if order >= shortest:
            known.append(ends)
    return known[::-1]
