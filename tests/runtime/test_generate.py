"""The generate loop over a real executable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specplan.ir.errors import SpecplanError, UsageError
from specplan.runtime import require_torch
from specplan.runtime.generate import generate
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.runtime.tokenizer import Tokenizer, load_tokenizer
from tests.runtime.plain_executable import PlainExecutable
from tests.runtime.tiny_tokenizer import save_tokenizer

Folder = Callable[..., Path]


@pytest.fixture
def executable(tiny: Folder) -> PlainExecutable:
    return _executable(tiny("llama"))


@cache
def _executable(folder: Path, burst: int = 1) -> PlainExecutable:
    return PlainExecutable(load_model(folder), burst)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


SAMPLED = Request(prompt_tokens=(5, 6, 7), max_new_tokens=12, temperature=1.0, seed=3)
GREEDY = Request(prompt_tokens=(9, 8), max_new_tokens=9)


def test_length_limit_and_statistics(executable: PlainExecutable) -> None:
    result = generate(executable, [GREEDY, replace(SAMPLED, max_new_tokens=0), SAMPLED])
    assert [len(item.tokens) for item in result.completions] == [9, 0, 12]
    assert [item.finish_reason for item in result.completions] == ["length"] * 3
    assert [item.rounds for item in result.completions] == [9, 0, 12]
    assert [item.tokens_per_round for item in result.completions] == [1.0, 0.0, 1.0]
    assert all(item.text is None for item in result.completions)
    assert (result.rounds, result.emitted, result.tokens_per_round) == (12, 21, 1.0)
    assert result.rounds_by_name == {"one": 12}
    assert result.prefill_seconds > 0 and result.decode_tokens_per_second > 0
    assert generate(executable, []).completions == ()


def test_output_does_not_depend_on_batch_mates_or_round_width(tiny: Folder) -> None:
    requests = [SAMPLED, GREEDY, replace(SAMPLED, seed=4), replace(SAMPLED, top_k=3, top_p=0.8)]
    alone = [
        generate(_executable(tiny("llama")), [request]).completions[0].tokens
        for request in requests
    ]
    for burst in (1, 3, 5):
        together = generate(_executable(tiny("llama"), burst), requests)
        assert [item.tokens for item in together.completions] == alone
    assert len(set(alone)) == len(alone)


def test_schedule_chooses_rounds_as_rows_finish(tiny: Folder) -> None:
    requests = [replace(GREEDY, max_new_tokens=4), replace(GREEDY, max_new_tokens=10)]
    result = generate(_executable(tiny("llama"), 4), requests)
    assert result.rounds_by_name == {"many": 1, "one": 6}
    assert [item.rounds for item in result.completions] == [1, 7]


@pytest.mark.parametrize("burst", [1, 4])
def test_stop_token_inside_a_round(tiny: Folder, tokenizer: Tokenizer, burst: int) -> None:
    executable = _executable(tiny("llama"), burst)
    free = generate(executable, [SAMPLED, SAMPLED]).completions[0].tokens
    stop = free[5]
    request = replace(SAMPLED, stop_tokens=(stop,))
    cut = generate(executable, [request, SAMPLED], tokenizer=tokenizer).completions[0]
    end = free.index(stop)
    assert cut.tokens == free[: end + 1]
    assert cut.finish_reason == "stop"
    assert cut.text == tokenizer.decode(free[:end])


def _collect() -> tuple[dict[int, list[Any]], Callable[..., None]]:
    heard: dict[int, list[Any]] = {}

    def listen(row: int, tokens: tuple[int, ...], texts: tuple[str, ...]) -> None:
        assert len(texts) == (len(tokens) or 1)
        heard.setdefault(row, []).append((tokens, "".join(texts)))

    return heard, listen


@pytest.mark.parametrize("burst", [1, 4])
def test_streaming_joins_to_the_result(tiny: Folder, tokenizer: Tokenizer, burst: int) -> None:
    heard, listen = _collect()
    requests = [SAMPLED, replace(SAMPLED, seed=9, max_new_tokens=20)]
    result = generate(
        _executable(tiny("llama"), burst), requests, tokenizer=tokenizer, on_tokens=listen
    )
    for row, item in enumerate(result.completions):
        assert sum((tokens for tokens, _ in heard[row]), ()) == item.tokens
        assert "".join(text for _, text in heard[row]) == item.text
        assert item.text == tokenizer.decode(item.tokens)


@pytest.mark.parametrize("burst", [1, 4])
def test_stop_string_is_cut_out(tiny: Folder, tokenizer: Tokenizer, burst: int) -> None:
    request = replace(SAMPLED, max_new_tokens=40, seed=11)
    executable = _executable(tiny("llama"), burst)
    whole = generate(executable, [request, request], tokenizer=tokenizer).completions[0]
    assert whole.text is not None
    readable = [c for c in whole.text if c != "�"]
    stop = "".join(readable)[10:12]
    assert stop in whole.text
    heard, listen = _collect()
    stopped = replace(request, stop_strings=(stop, "never to be seen"))
    result = generate(
        executable, [stopped, request], tokenizer=tokenizer, on_tokens=listen
    ).completions
    assert result[0].finish_reason == "stop_string"
    assert result[0].text == whole.text[: whole.text.index(stop)]
    assert "".join(text for _, text in heard[0]) == result[0].text
    assert result[0].tokens == whole.tokens[: len(result[0].tokens)]
    assert stop in tokenizer.decode(result[0].tokens)
    assert stop not in tokenizer.decode(result[0].tokens[:-1])
    assert result[1].tokens == whole.tokens


def test_stop_string_held_back_at_the_end_is_shown(
    executable: PlainExecutable, tokenizer: Tokenizer
) -> None:
    whole = generate(executable, [SAMPLED], tokenizer=tokenizer).completions[0]
    assert whole.text
    request = replace(SAMPLED, stop_strings=(whole.text[-1] + "\0",))
    assert generate(executable, [request], tokenizer=tokenizer).completions[0] == whole


def test_refusals(executable: PlainExecutable, tiny: Folder) -> None:
    with pytest.raises(UsageError, match="tokenizer"):
        generate(executable, [replace(GREEDY, stop_strings=("a",))])
    stuck = PlainExecutable(load_model(tiny("llama")), idle=True)
    with pytest.raises(SpecplanError, match="emitted nothing"):
        generate(stuck, [GREEDY])


def test_observer_hears_every_op(executable: PlainExecutable) -> None:
    heard: list[Any] = []
    generate(executable, [GREEDY], observer=lambda *event: heard.append(event))
    assert len(heard) == 9
    assert heard[0][:5] == ("forward", "target", 1, 1, 2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"prompt_tokens": ()}, "prompt_tokens"),
        ({"prompt_tokens": (1, -2)}, "prompt_tokens"),
        ({"prompt_tokens": "text"}, "prompt_tokens"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"temperature": -0.5}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 1e-40}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"stop_strings": "text"}, "stop_strings"),
        ({"stop_strings": ("",)}, "stop_strings"),
    ],
)
def test_requests_name_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=f"request.{field}"):
        replace(GREEDY, **changes)


def test_require_torch_is_silent_where_torch_is() -> None:
    require_torch()
