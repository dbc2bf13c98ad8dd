"""Tokenizers, streaming without half characters, stop strings, chat templates."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir.errors import UsageError
from specplan.runtime.chat import chat_tokens
from specplan.runtime.tokenizer import StopStrings, StreamDecoder, Tokenizer, load_tokenizer
from tests.runtime.tiny_tokenizer import TEMPLATE, TEXT, save_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(save_tokenizer(tmp_path_factory.mktemp("tokenizer"), template=TEMPLATE))


def test_round_trip(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert tokenizer.stop_tokens == (0,)
    assert tokenizer.decode([0, *tokenizer.encode("a"), 0]) == "a"


def test_streams_whole_characters(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(TEXT)
    decoder = StreamDecoder(tokenizer)
    pieces = [decoder.feed(token) for token in tokens]
    assert "".join(pieces) == TEXT
    assert "" in pieces  # some characters are several tokens
    assert not any("�" in piece for piece in pieces)
    assert decoder.flush() == ""


@settings(max_examples=200)
@given(data=st.data())
def test_pieces_join_to_the_whole(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """For any tokens, broken bytes included."""
    tokens = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=30))
    decoder = StreamDecoder(tokenizer)
    text = "".join(decoder.feed(token) for token in tokens) + decoder.flush()
    assert text == tokenizer.decode(tokens)


def test_prompt_that_ends_inside_a_character(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a🐢")
    decoder = StreamDecoder(tokenizer, tokens[:-1])
    assert decoder.feed(tokens[-1]) == "🐢"


def test_broken_bytes_are_shown_at_the_end(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("🐢")[:2]
    decoder = StreamDecoder(tokenizer)
    assert [decoder.feed(token) for token in half] == ["", ""]
    assert decoder.flush() == tokenizer.decode(half) != ""


def test_stop_generation_config_wins(tmp_path: Path) -> None:
    assert load_tokenizer(save_tokenizer(tmp_path, stops=[3, 5])).stop_tokens == (3, 5)
    assert load_tokenizer(save_tokenizer(tmp_path, stops=7)).stop_tokens == (7,)


def test_missing_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def _watch(strings: list[str], pieces: list[str]) -> tuple[str, bool]:
    watch = StopStrings(strings)
    text = ""
    for piece in pieces:
        text += watch.feed(piece)
        if watch.stopped:
            return text, True
    return text + watch.flush(), False


def test_stop_strings_hold_back_partial_matches() -> None:
    watch = StopStrings(["</s>"])
    assert watch.feed("a</") == "a"
    assert watch.feed("b</s") == "</b"
    assert watch.feed("> and more") == "" and watch.stopped
    assert watch.feed("even more") == ""


def test_stop_strings_completed_first_win() -> None:
    assert _watch(["abcd", "c"], ["xabcd"]) == ("xab", True)
    assert _watch(["c", "abc"], ["xabcd"]) == ("x", True)
    assert _watch([], ["a", "b"]) == ("ab", False)


@given(
    text=st.text("ab", max_size=12),
    strings=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_stop_strings_do_not_depend_on_pieces(
    text: str, strings: list[str], cuts: list[int]
) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    watched = _watch(strings, pieces)
    assert watched == _watch(strings, list(text))
    ends = [text.find(string) + len(string) for string in strings if string in text]
    assert watched[1] == bool(ends)
    if not ends:
        assert watched[0] == text
    else:
        assert any(text[: min(ends)] == watched[0] + string for string in strings)


def test_chat_template(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "add"}]
    assert tokenizer.decode(chat_tokens(tokenizer, messages)) == "<user>add<assistant>"
    final = [*messages, {"role": "assistant", "content": "a +"}]
    text = tokenizer.decode(chat_tokens(tokenizer, final, continue_final=True))
    assert text.endswith("a +")


def test_chat_refusals(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no messages"):
        chat_tokens(tokenizer, [])
    plain = load_tokenizer(save_tokenizer(tmp_path / "plain"))
    with pytest.raises(UsageError, match="no chat template"):
        chat_tokens(plain, [{"role": "user", "content": "a"}])
    strict = save_tokenizer(tmp_path / "strict", template="{{ raise_exception('bad role') }}")
    with pytest.raises(UsageError, match="bad role"):
        chat_tokens(load_tokenizer(strict), [{"role": "tool", "content": "a"}])
