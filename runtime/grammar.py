"""Grammars that an output must follow, by `llguidance`: which tokens may come next.

The distribution of a request with a grammar is that of its model, with probability 0 for every
token that no text of the grammar goes on with (masked sampling). So a plan needs no op for it:
logits are masked along the path of their node, in drafts and in judgement alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import UsageError
from specplan.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

Flags = NDArray[np.bool_]
"""`[..., V]`, true for tokens that may not come next."""

_NOTHING: Flags = np.zeros(1, dtype=np.bool_)
_JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As `json.dumps` writes it. Free white space has no bound, so that a schema would bound no text;
a schema that wants another style says so by "x-guidance"."""


@dataclass(frozen=True)
class Grammar:
    """A compiled grammar over the tokens of one vocabulary.

    Attributes:
        kind: what the text is: a JSON schema, a grammar in Lark's notation, a regular expression.
        text: of the grammar.
        tokens: the vocabulary, as `vocabulary_of` gives it.

    Raises:
        UsageError: the text is no such grammar.
    """

    kind: str
    text: str
    tokens: LLTokenizer = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        broken = self._start.get_error()
        if broken:
            raise UsageError(
                f"the grammar cannot be compiled ({broken.splitlines()[0]})",
                where=self.kind,
                remedy="Give a JSON schema, a grammar in Lark's notation, or a regular expression.",
            )

    @cached_property
    def _start(self) -> LLMatcher:
        """Before the first token; copies share what it has learned of the vocabulary."""
        from llguidance import LLMatcher

        compilers: dict[str, Any] = {
            "json_schema": lambda text: LLMatcher.grammar_from_json_schema(text, _JSON_STYLE),  # type: ignore[arg-type]
            "lark": LLMatcher.grammar_from_lark,
            "regex": LLMatcher.grammar_from_regex,
        }
        try:
            source = compilers[self.kind](self.text)
        except ValueError as error:
            raise UsageError(f"the grammar cannot be read ({error})", where=self.kind) from error
        return LLMatcher(self.tokens, source, log_level=0)

    def matcher(self) -> LLMatcher:
        """A parser before the first token."""
        return self._start.deep_copy()

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end a text; the parser allows one where the text is complete."""
        return tuple(self.tokens.eos_tokens)


def vocabulary_of(tokenizer: Tokenizer) -> LLTokenizer:
    """A tokenizer's vocabulary as the parser reads it.

    Raises:
        UsageError: it is no fast tokenizer, or no token ends a text.
    """
    from llguidance import LLTokenizer

    fast = getattr(tokenizer.backend, "backend_tokenizer", None)
    if fast is None or not tokenizer.stop_tokens:
        raise UsageError(
            "grammars need a tokenizer with a tokenizer.json and a token that ends a text",
            where="the target's tokenizer",
            remedy="Add tokenizer.json, and eos_token_id to generation_config.json.",
        )
    return LLTokenizer(fast.to_str(), eos_token=list(tokenizer.stop_tokens))


class Constraint:
    """The grammar of one request, as far as its text has come.

    The parser moves along the nodes that masks are asked for, and back; what it has said of a
    node is remembered until the text grows.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._parser, self._ends = grammar.matcher(), frozenset(grammar.ends)
        self._size = grammar.tokens.vocab_size
        self._line: list[int] = []  # keys of the nodes that the parser has taken in below the text
        self._known: dict[int, Flags] = {}

    def append(self, tokens: Sequence[int]) -> None:
        """The text has grown."""
        self._parser.rollback(len(self._line))
        self._line.clear()
        self._known.clear()
        self._parser.try_consume_tokens(list(tokens))

    def fill(
        self,
        flags: Flags,
        wanted: Sequence[int],
        tokens: Sequence[int],
        parents: Sequence[int],
        keys: Sequence[int],
    ) -> None:
        """What may not follow nodes of a tree; nothing for nodes that the grammar rules out.

        Args:
            flags: `[N, V]`, one row for each wanted node; V may exceed the tokens of the grammar.
            wanted: N columns of the tree; 0 is the root, the last token of the text.
            tokens: of all columns.
            parents: columns.
            keys: of their paths.
        """
        for row, column in zip(flags, wanted, strict=True):
            known = self._known.get(keys[column])
            if known is None:
                known = _NOTHING
                if self._move(column, tokens, parents, keys):
                    known = ruled_out(self._parser, len(row))
                self._known[keys[column]] = known
            row[:] = known

    def _move(
        self, column: int, tokens: Sequence[int], parents: Sequence[int], keys: Sequence[int]
    ) -> bool:
        """Take in the path to a node; whether the grammar allows it, and the text goes on.

        The parser never takes in an end, or a token that it does not know: it does not find back
        from there.
        """
        path, line, shared = [], self._line, 0
        while column:
            path.append(column)
            column = parents[column]
        path.reverse()
        most = min(len(line), len(path))
        while shared < most and line[shared] == keys[path[shared]]:
            shared += 1
        if shared < len(line):
            self._parser.rollback(len(line) - shared)
            del line[shared:]
        for node in path[shared:]:
            token = tokens[node]
            if token in self._ends or token >= self._size:
                return False
            if not self._parser.try_consume_tokens([token]):
                return False
            line.append(keys[node])
        return True


def ruled_out(parser: LLMatcher, vocabulary: int) -> Flags:
    """Which of so many tokens a parser does not let follow, those that it does not know too."""
    mask = np.frombuffer(parser.compute_bitmask(), np.uint8)
    flags: Flags = np.unpackbits(mask, count=vocabulary, bitorder="little") == 0
    return flags


def along(grammar: Grammar, output: Sequence[int], vocabulary: int) -> Flags:
    """Which tokens may not stand at each place of an output, bool `[n, vocabulary]`.

    None of them behind a token that the grammar rules out, or that ends the text.
    """
    flags = np.zeros((len(output), vocabulary), dtype=np.bool_)
    columns = range(len(output))
    tokens = [0, *output[:-1]]
    Constraint(grammar).fill(flags, columns, tokens, [max(c - 1, 0) for c in columns], columns)
    return flags
