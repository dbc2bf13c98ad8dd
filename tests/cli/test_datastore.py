"""`specplan datastore build`: from a text and from token ids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan import datastores
from specplan.runtime.sources.datastore import Datastore
from specplan.runtime.sources.source import Wanted
from specplan.runtime.tokenizer import load_tokenizer
from tests.cli.test_program import specplan_here

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = REPOSITORY / "examples" / "reference_models" / "target"
VOCABULARY = json.loads((TARGET / "config.json").read_text())["vocab_size"]


def build(corpus: Path, out: Path, *more: str) -> dict[str, int]:
    done = specplan_here(
        "datastore", "build", str(corpus), "--tokenizer", str(TARGET), "--out", str(out),
        "--json", *more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_a_text_is_found_again_after_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datastores, "TEXT_SHARD", 4000)
    corpus = REPOSITORY / "CONTRIBUTING.md"
    found = build(corpus, tmp_path / "store")
    assert found["shards"] == -(-corpus.stat().st_size // 4000) > 1
    tokenizer, store = load_tokenizer(TARGET), Datastore(tmp_path / "store", VOCABULARY, 16)
    line = "It is found by its place. The test over all methods then checks it"
    tokens = np.array(tokenizer.encode(line, special=False))
    text, after = tokens[:-4], tokens[-4:]
    looked_up = store.lookup(text[None], np.array([len(text)]), Wanted(2, 16, 1, 4))
    assert looked_up.tokens[0].tolist() == after.tolist()


def test_every_byte_of_a_text_belongs_to_one_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus.txt"
    lines = [f"line {number} " + "x" * (number % 90) + "\n" for number in range(400)]
    corpus.write_text("".join(lines))
    for size in (100, 101, 1000, 100_000):
        monkeypatch.setattr(datastores, "TEXT_SHARD", size)
        monkeypatch.setattr(datastores, "_DOCUMENT", 64)
        starts = range(0, corpus.stat().st_size, size)
        parts = [text for start in starts for _, text in datastores._documents(corpus, start)]
        assert "".join(parts) == corpus.read_text()


def test_token_ids_and_compaction(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.tile(np.arange(50), 40))
    whole = build(tmp_path / "ids.npy", tmp_path / "whole")
    small = build(tmp_path / "ids.npy", tmp_path / "small", "--keep", "2", "--common", "3")
    assert whole["places"] == 2000 and small["places"] < 300
    assert small["bytes"] < whole["bytes"] / 2


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.txt", None, "there is no such corpus"),
        ("broken.npy", b"no array", "this is no array"),
        ("floats.npy", np.ones(3), "whole numbers"),
        ("foreign.npy", np.array([VOCABULARY]), "outside the vocabulary"),
    ],
)
def test_what_is_no_corpus_is_refused(
    name: str, content: bytes | np.ndarray | None, says: str, tmp_path: Path
) -> None:
    corpus = tmp_path / name
    if isinstance(content, bytes):
        corpus.write_bytes(content)
    elif content is not None:
        np.save(corpus, content)
    done = specplan_here(
        "datastore", "build", str(corpus), "--tokenizer", str(TARGET), "--out", str(tmp_path / "o")
    )
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
