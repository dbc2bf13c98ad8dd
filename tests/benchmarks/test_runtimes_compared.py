"""`benchmarks/peers.py`: what its table says of turns that were taken, and which turns count."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

TEXTS = ([1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9])
OTHER = [5, 6, 7, 7]


@pytest.fixture
def peers(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("peers")


def turns(seconds: Sequence[float], second: Sequence[int] = TEXTS[1]) -> list[dict[str, Any]]:
    texts = (TEXTS[0], second, TEXTS[2])
    return [
        {"seconds": each, "first": each / 4, "tokens": [*text], "foreign": 0.0}
        for each, text in zip(seconds, texts, strict=True)
    ]


def test_rows_compare_with_our_fastest_of_the_same_kind_and_format(peers: Any) -> None:
    plain, whole = peers.Setting("plain", "f32", 0, 3), peers.Setting("plain", "int8", 0, 3)
    contenders = [
        peers.Contender("specplan onnxruntime", 0, plain, turns([2.0, 4.0, 1.0])),
        peers.Contender("specplan inductor", 0, plain, turns([4.0, 8.0, 2.0])),
        peers.Contender("llama_cpp", 0, plain, turns([1.0, 6.0, 2.0], OTHER)),
        peers.Contender("llama_cpp", 1, whole, turns([1.0, 1.0, 0.5])),
    ]
    rows = {(row["runtime"], row["dtype"]): row for row in peers.rows_of(contenders)}
    theirs = rows["llama_cpp", "f32"]
    assert theirs["ours_over_theirs"] == pytest.approx(1.5)  # of 0.5, 1.5 and 2, by prompt
    assert theirs["same_texts"] == 2 and theirs["tokens_per_second"] == 2.0
    tokens = 3 * len(TEXTS[0])
    assert theirs["tokens_per_second_of_all"] == pytest.approx(tokens / 9.0)
    assert rows["specplan inductor", "f32"]["ours_over_theirs"] is None
    assert rows["llama_cpp", "int8"]["ours_over_theirs"] is None  # we ran none
    assert next(iter(rows)) == ("llama_cpp", "int8")
    result = {"rows": [*rows.values()], "prompts": 3}
    assert "| llama_cpp | f32 | plain | 2 | 1 | 500 ms | 1.50 | 2/3 |" in peers.table(result)


def test_a_disturbed_turn_is_run_again_and_the_least_disturbed_counts(
    peers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = iter([50, 20, 30])

    class Machine:
        total = idle = 0

        def ask(self, number: int, tokens: Sequence[int]) -> dict[str, Any]:
            others = next(foreign)
            self.total, self.idle = self.total + 200, self.idle + 100 - others
            return {"seconds": float(others), "first": None, "tokens": [*tokens]}

        def ticks(self) -> int:
            return self.total // 2  # half of the machine is its own

    machine = Machine()
    monkeypatch.setattr(peers, "machine_ticks", lambda: (machine.total, machine.idle))
    monkeypatch.setattr(peers, "wait_for_quiet", lambda seconds: None)
    answer = peers.turn(machine, 0, [1, 2], patience=2)
    assert answer["seconds"] == 20.0 and answer["foreign"] == pytest.approx(0.1)
