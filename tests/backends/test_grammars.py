"""Outputs under a grammar: masked sampling, whatever drafts.

A request's grammar is part of its distribution: every method decodes what plain decoding of the
masked model does, its drafts follow the grammar, and the interpreter agrees with the definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.planner.facts import ProblemFacts
from specplan.runtime.grammar import Grammar
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import outputs
from tests.backends.heads import with_heads
from tests.backends.kinds import LOSSLESS, RUNNABLE, all_facts, kinds_of
from tests.backends.pairs import load_pair, plain, save_pair
from tests.backends.text_laws import LENGTH, PROMPT, VOCABULARY, law_of_texts, p_value
from tests.matrix import sized

llguidance = pytest.importorskip("llguidance")

SIZE = 61
"""Tokens of the models; the vocabulary of the grammars has fewer."""
RECORDS = r"(\{[a-f]{1,4}=(AB|AC|[0-5]{2})\}|hello;)+"
"""Runs that are free, runs that are forced, and two that begin alike."""
CHANCE = 1e-4


class Bytes:
    """A vocabulary of single characters; its last token ends a text."""

    bos_token_id = None

    def __init__(self, characters: str) -> None:
        self.tokens = [*(one.encode() for one in characters), b"<end>"]
        self.eos_token_id = len(characters)
        self.special_token_ids = [self.eos_token_id]
        self.of = {one: token for token, one in enumerate(characters)}

    def __call__(self, text: str) -> list[int]:
        return [self.of[one] for one in text]

    def grammar(self, expression: str) -> Grammar:
        from llguidance import LLTokenizer, TokenizerWrapper

        return Grammar("regex", expression, LLTokenizer(TokenizerWrapper(self)))

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(self.tokens[token].decode() for token in tokens)


CHARACTERS = "".join(map(chr, (*range(ord("0"), ord("J")), *range(ord("a"), ord("}") + 1), 33, 34)))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("grammars")
    save_pair(folder, SIZE, scale=0.14, sureness=6.0)
    return with_heads(load_pair(folder))


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[float, ProblemFacts]:
    folder = tmp_path_factory.mktemp("facts")
    return {t: all_facts(folder / f"{t}", t, SIZE) for t in (0.0, 0.8)}


def requests_of(letters: Bytes, temperature: float) -> list[Request]:
    """Two requests with a grammar and one without, in one batch."""
    prompts = ((3, 1, 4, 1, 5, 3, 1, 4, 1), (2, 7), (5, 9, 5, 9, 5, 9, 5, 9, 5, 9, 5))
    grammars = (letters.grammar(RECORDS), letters.grammar("(ab|cd?e){2,4}"), None)
    return [
        Request(
            prompt_tokens=prompt,
            max_new_tokens=11,
            temperature=temperature,
            seed=seed,
            grammar=grammar,
        )
        for seed, (prompt, grammar) in enumerate(zip(prompts, grammars, strict=True))
    ]


@pytest.fixture(scope="module")
def expected(models: dict[str, Any]) -> list[tuple[int, ...]]:
    """What the target says alone, greedily."""
    decodes = outputs(EagerBackend().compile(plain(), models), requests_of(Bytes(CHARACTERS), 0.0))
    return [tokens for tokens, _ in decodes]


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_method_follows_grammars(
    name: str,
    models: dict[str, Any],
    facts: dict[float, ProblemFacts],
    expected: list[tuple[int, ...]],
) -> None:
    """The first kind of its plans: tokens of plain decoding, and those of the definition.

    What the definition makes of requests without a grammar is compared in `test_every_plan.py`.
    """
    letters = Bytes(CHARACTERS)
    for temperature in (0.0, 0.8):
        plan = next(kinds_of(RUNNABLE[name], facts[temperature])).plan
        requests = requests_of(letters, temperature)
        decodes = outputs(EagerBackend().compile(plan, models), requests)
        if temperature or not RUNNABLE[name].lossless:
            defined = requests[:2] if plan.assumptions.reproducible else requests
            given = outputs(OracleBackend().compile(plan, models), defined)
            assert decodes[: len(defined)] == given
        for (tokens, _), expression in zip(decodes, (RECORDS, "(ab|cd?e){2,4}"), strict=False):
            text = letters.text([token for token in tokens if token != letters.eos_token_id])
            assert regex.fullmatch(expression, text, partial=True), (name, text)
            whole = tokens[-1] == letters.eos_token_id
            assert not whole or regex.fullmatch(expression, text), (name, text)
        if temperature == 0 and RUNNABLE[name].lossless:
            assert [tokens for tokens, _ in decodes] == expected


def test_sampled_output_is_masked_sampling(tmp_path: Path) -> None:
    """Counts over many texts against the law by enumeration; a law without the mask is refuted.

    The first kind of a method's plans; two in the long matrix.
    """
    save_pair(tmp_path / "pair", VOCABULARY, scale=0.3)
    pair: dict[str, CausalModel] = with_heads(load_pair(tmp_path / "pair"))
    letters = Bytes("abcd")
    grammar = letters.grammar("(a[bc]|[cd]a|bd)[abd]{3,}")
    masked = law_of_texts(pair["target"], left=lambda text: following(grammar, text))
    assert (masked == 0).sum() > len(masked) / 2
    facts = all_facts(tmp_path / "facts", 0.8, VOCABULARY)
    names = ("autoregressive", "draft_model", "multi_candidate", "prompt_lookup", "shared_draws")
    for name in names:
        for kind in list(kinds_of(LOSSLESS[name], facts, most=VOCABULARY))[: sized(1, 2)]:
            value = p_value(kind.plan, pair, masked, 1500, grammar=grammar)
            assert value > CHANCE, kind.words


def following(grammar: Grammar, text: Sequence[int]) -> np.ndarray:
    """Tokens that may follow a text, by trying each of them."""
    parser = grammar.matcher()
    assert parser.try_consume_tokens([*text]) == len(text)
    return np.array([bool(parser.deep_copy().validate_tokens([t])) for t in range(VOCABULARY)])


def test_what_cannot_be_done_is_refused(models: dict[str, Any]) -> None:
    letters = Bytes(CHARACTERS)
    with pytest.raises(UsageError, match="cannot be compiled"):
        letters.grammar("(a")
    large = Bytes(CHARACTERS + "#$%&'()").grammar("a+")
    wide = Request(prompt_tokens=PROMPT, max_new_tokens=LENGTH, grammar=large)
    with pytest.raises(UsageError, match="over 65 tokens, and the target has 61"):
        EagerBackend().compile(plain(), models).start([wide])
    narrow = Request(prompt_tokens=PROMPT, grammar=letters.grammar("a+"))
    with pytest.raises(MissingCapabilityError, match="parser"):
        StaticExecutable(plain(), models).start([narrow])
