"""Datastores: the longest match of a corpus, exactly; builds that are killed go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan import datastores
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json
from specplan.runtime.sources.datastore import Datastore, Packing
from specplan.runtime.sources.datastore_build import build_datastore
from specplan.runtime.sources.source import Wanted
from tests.planner.big_models import write_70b
from tests.runtime.stated_trees import draft_paths, stated_paths


def silent(description: str, done: int, total: int) -> None:
    pass


def corpus(size: int, vocabulary: int, seed: int = 0) -> np.ndarray:
    """Tokens of uneven frequency, with passages that come again."""
    rng = np.random.default_rng(seed)
    tokens = rng.zipf(1.4, size) % vocabulary
    for _ in range(size // 50):
        here, there, length = *rng.integers(0, size - 40, 2), rng.integers(3, 40)
        tokens[here : here + length] = tokens[there : there + length]
    return tokens


def built(folder: Path, shards: list[np.ndarray], vocabulary: int, **options: int) -> Datastore:
    """Each is sorted alone."""
    options = {"together": 1} | options
    pieces = [lambda shard=shard: [shard] for shard in shards]
    build_datastore(folder, pieces, vocabulary, "test", silent, **options)
    return Datastore(folder, vocabulary, 16)


@pytest.mark.parametrize("vocabulary", [5, 3000, 70_000, 1 << 20])
def test_the_longest_match_is_found_and_all_that_followed_it(
    vocabulary: int, tmp_path: Path
) -> None:
    shards = [corpus(900, vocabulary, seed) for seed in range(2)]
    store = built(tmp_path / "store", shards, vocabulary)
    rng = np.random.default_rng(1)
    for _ in range(40):
        shard = shards[rng.integers(2)]
        end = int(rng.integers(6, 900))
        text = shard[max(0, end - int(rng.integers(1, 25))) : end]
        best, after = longest_match(shards, text, 16)
        continuations = store.lookup(
            text[None], np.array([len(text)]), Wanted(1, 16, 4000, 1, 3999)
        )
        assert set(continuations.tokens[0][continuations.live[0]].tolist()) == set(after), (
            best,
            text,
        )
        some = store.lookup(text[None], np.array([len(text)]), Wanted(best + 1, 16, 8, 1, 7))
        assert not some.live.any()


TOKENS = st.lists(st.integers(0, 2), max_size=40)


@settings(max_examples=60)
@given(
    shards=st.lists(st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=3),
    texts=st.lists(TOKENS, min_size=1, max_size=5),
    room=st.integers(0, 3),
    shortest=st.integers(1, 3),
    longest=st.integers(1, 20),
    length=st.integers(1, 4),
    merged=st.booleans(),
)
def test_a_batch_of_lookups_gives_the_trees_that_are_stated(
    shards: list[list[list[int]]],
    texts: list[list[int]],
    room: int,
    shortest: int,
    longest: int,
    length: int,
    merged: bool,
) -> None:
    """Of all places whose context has the most in common with each text's end."""
    if not any(tokens for documents in shards for tokens in documents):
        shards = [[[0]]]
    pieces = [lambda docs=docs: [np.array(d, np.int64) for d in docs] for docs in shards]
    wanted = Wanted(shortest, longest, 300, length, 300 * length - 1 if merged else None)
    with tempfile.TemporaryDirectory() as folder:
        build_datastore(Path(folder), pieces, 3, "test", silent, together=1)
        store = Datastore(Path(folder), 3, 16)
        padded = np.full((len(texts), max(map(len, texts)) + room), 1)
        for row, text in enumerate(texts):
            padded[row, : len(text)] = text
        if not padded.shape[1]:
            return
        continuations = store.lookup(padded, np.array([len(text) for text in texts]), wanted)
    documents = [tokens for documents in shards for tokens in documents]
    for text, paths in zip(texts, draft_paths(continuations), strict=True):
        assert paths == stated_paths(followed(documents, text, wanted), wanted)


def followed(documents: list[list[int]], text: list[int], wanted: Wanted) -> list[tuple[int, ...]]:
    """What followed the longest ends of a text in a corpus, sixteen tokens or fewer."""
    for same in range(min(wanted.longest, 16, len(text)), wanted.shortest - 1, -1):
        continuations = [
            tuple(tokens[place : place + wanted.length])
            for tokens in documents
            for place in range(same, len(tokens))
            if tokens[place - same : place] == text[len(text) - same :]
        ]
        if continuations:
            return continuations
    return []


def longest_match(shards: list[np.ndarray], text: np.ndarray, most: int) -> tuple[int, list[int]]:
    best, after = 0, list[int]()
    for shard in shards:
        for place in range(1, len(shard)):
            same = 0
            while same < min(place, len(text), most) and shard[place - 1 - same] == text[-1 - same]:
                same += 1
            if same > best:
                best, after = same, []
            if same == best > 0:
                after.append(int(shard[place]))
    return best, after


def test_the_longest_match_is_found_among_many_that_agree_in_the_first_key(tmp_path: Path) -> None:
    """Keys hold three tokens of so many; of 3000 runs of three that are alike, one is continued."""
    before, after = (
        1000 * (kind + 1) + np.random.default_rng(0).permutation(3000) for kind in (0, 9)
    )
    runs = np.stack([before, *np.full((3, 3000), 7), after], axis=1)
    store = built(tmp_path, [runs[:1000].ravel(), runs[1000:].ravel()], 1 << 20)
    continuations = store.lookup(runs[:, :4], np.full(3000, 4), Wanted(1, 16))
    assert continuations.live.all() and continuations.tokens[:, 0].tolist() == after.tolist()


def test_keys_sort_as_tokens_do() -> None:
    packing = Packing(3000)
    rng = np.random.default_rng(0)
    contexts = rng.integers(0, 3, (200, packing.tokens)) * 1500
    keys = packing.keys(contexts)
    order = np.lexsort(contexts.T[::-1])
    assert (np.diff(keys[order].astype(object)) >= 0).all()
    pairs = packing.alike(keys[:100], keys[100:])
    expected = np.logical_and.accumulate(contexts[:100] == contexts[100:], axis=1).sum(1)
    assert pairs.tolist() == expected.tolist()


def test_compaction_drops_rare_runs_and_thins_common_ones(tmp_path: Path) -> None:
    tokens = np.concatenate([np.tile(np.arange(9), 200), np.arange(9, 900)])
    whole = built(tmp_path / "whole", [tokens], 1000)
    small = built(tmp_path / "small", [tokens], 1000, keep=4, common=2)
    sizes = [len((tmp_path / name / "keys.bin").read_bytes()) // 8 for name in ("whole", "small")]
    assert sizes[0] == len(tokens) and sizes[1] <= 9 * 4 + 20
    common, rare = np.arange(6)[None], np.arange(100, 106)[None]
    for store, known in ((whole, 1), (small, 0)):
        assert store.lookup(common, np.array([6]), Wanted(1, 16)).tokens[0, 0] == 6
        assert store.lookup(rare, np.array([6]), Wanted(1, 16)).live.sum() == known


def test_every_line_of_a_corpus_is_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datastores, "TEXT_PIECE", 1000)
    monkeypatch.setattr(datastores, "_DOCUMENT", 90)
    corpus, lines = tmp_path / "corpus.txt", [f"line {i} {'x' * (i % 37)}\n" for i in range(400)]
    corpus.write_text("".join(lines))
    starts = range(0, corpus.stat().st_size, 1000)
    read = [text for start in starts for _, text in datastores._documents(corpus, start)]
    assert "".join(read) == "".join(lines)


def test_what_follows_ends_with_its_document(tmp_path: Path) -> None:
    documents = [np.array([1, 2, 3]), np.array([1, 2, 3, 4])]
    build_datastore(tmp_path, [lambda: documents], 9, "two", silent)
    store = Datastore(tmp_path, 9, 16)
    continuations = store.lookup(np.array([[1]]), np.array([1]), Wanted(1, 4, 4, 5, 19))
    assert Counter(continuations.tokens[0][continuations.live[0]].tolist()) == Counter([2, 3, 4])


@pytest.mark.parametrize(
    ("file", "asked_again"),
    [(None, [2, 3]), ("tokens-00001.shard", [1, 2, 3]), ("keys-00001.shard", []), ("keys.bin", [])],
    ids=[
        "between pieces",
        "while one is written",
        "while a shard is sorted",
        "while all are joined",
    ],
)
def test_a_killed_build_keeps_what_it_has_and_goes_on(
    file: str | None, asked_again: list[int], tmp_path: Path
) -> None:
    """Killed by SIGKILL, as a machine that goes down would, half a part of a file written."""
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})
from pathlib import Path
from tests.runtime.sources.test_datastore import corpus, silent
from specplan.runtime.sources import datastore_build as building
def stop():
    print("here", flush=True)
    time.sleep(60)
def halves(path, parts):
    for number, part in enumerate(parts):
        yield part[: len(part) // 2]
        if path.name == {file!r} and number == (1 if path.suffix == ".bin" else 0):
            stop()
        yield part[len(part) // 2 :]
write = building._write
building._write = lambda path, parts: write(path, halves(path, parts))
def piece(number):
    if number == 2 and {file is None}:
        stop()
    return [corpus(2000, 50, number)]
pieces = [lambda number=number: piece(number) for number in range(4)]
folder = Path({str(tmp_path / "killed")!r})
building.build_datastore(folder, pieces, 50, "c", silent, together=4100)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(UsageError, match="no finished datastore"):
        Datastore(tmp_path / "killed", 50, 16)
    if file is not None:
        assert not (tmp_path / "killed" / file).exists()
        part = (tmp_path / "killed" / file).with_suffix(".part")
        assert part.stat().st_size > 1000  # half of it
    asked: list[int] = []

    def piece(number: int) -> list[np.ndarray]:
        asked.append(number)
        return [corpus(2000, 50, number)]

    pieces = [lambda number=number: piece(number) for number in range(4)]
    build_datastore(tmp_path / "killed", pieces, 50, "c", silent, together=4100)
    assert asked == asked_again
    build_datastore(tmp_path / "whole", pieces, 50, "c", silent, together=4100)
    assert len(read_json(tmp_path / "whole" / "datastore.json")["ends"]) == 2
    names = {"tokens.bin", "keys.bin", "places.bin", "datastore.json"}
    assert {path.name for path in (tmp_path / "killed").iterdir()} == names
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_another_corpus_and_foreign_tokens_are_refused(tmp_path: Path) -> None:
    def never() -> list[np.ndarray]:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        build_datastore(tmp_path / "a", [never], 9, "one", silent)
    with pytest.raises(UsageError, match="another corpus"):
        build_datastore(tmp_path / "a", [never], 9, "two", silent)
    built(tmp_path / "whole", [corpus(100, 9)], 9)
    with pytest.raises(UsageError, match="another corpus"):  # a finished one is not replaced
        build_datastore(tmp_path / "whole", [never], 9, "two", silent)
    with pytest.raises(UsageError, match="outside the vocabulary"):
        build_datastore(tmp_path / "b", [lambda: [np.array([1, 9])]], 9, "one", silent)
    built(tmp_path / "c", [corpus(100, 9)], 9)
    with pytest.raises(UsageError, match="vocabulary"):
        Datastore(tmp_path / "c", 8, 16)


@pytest.mark.parametrize("vocabulary", [3000, 70_000])
def test_memory_beside_the_mapped_files_stays_below_what_is_stated(
    vocabulary: int, tmp_path: Path
) -> None:
    """All contexts agree as far as is looked, in ten shards, of more bytes than are allowed."""
    shards = [np.tile(np.arange(50), 800)] * 10
    built(tmp_path, shards, vocabulary)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    texts = np.stack([np.arange(row, row + 24) % 50 for row in range(64)])
    for wanted in (Wanted(1, 16, 1, 8), Wanted(1, 16, 16, 16, 255)):
        tracemalloc.start()
        store = Datastore(tmp_path, vocabulary, 16)
        continuations = store.lookup(texts, np.full(64, 24), wanted)
        current, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert continuations.live.any(1).all()
        assert current < 1e6 and 0.2 * store.most_bytes < most < store.most_bytes < size


def test_progress_is_reported_piece_by_piece_and_shard_by_shard(tmp_path: Path) -> None:
    progress: list[tuple[str, int, int]] = []
    pieces = [lambda: [corpus(100, 9)]] * 3
    summary = build_datastore(
        tmp_path, pieces, 9, "x", lambda *step: progress.append(step), together=202
    )
    assert [done for _, done, total in progress if total == 3] == [0, 1, 2, 3]
    assert [done for _, done, total in progress if total == 2] == [0, 1, 2]
    assert summary == {"tokens": 303, "places": 303 - 3, "shards": 2}


def test_pieces_sorted_together_are_found_as_one(tmp_path: Path) -> None:
    shards = [corpus(300, 50, seed) for seed in range(4)]
    separate = built(tmp_path / "apart", shards, 50)
    joined = built(tmp_path / "joined", shards, 50, together=10_000)
    for end in range(10, 300, 10):
        text, wanted = shards[end % 4][None, end - 10 : end], Wanted(1, 16, 4000, 1, 3999)
        drafts = [store.lookup(text, np.array([10]), wanted) for store in (separate, joined)]
        one, other = (set(each.tokens[0][each.live[0]].tolist()) for each in drafts)
        assert one == other and one


def test_what_keeps_nothing_is_refused_or_left_out(tmp_path: Path) -> None:
    small = np.arange(8)
    with pytest.raises(UsageError, match="no run of tokens occurs often enough"):
        built(tmp_path / "none", [small], 9, common=50)
    with pytest.raises(UsageError, match="no run of tokens occurs often enough"):
        build_datastore(tmp_path / "empty", [], 9, "test", silent)
    shards = [np.zeros(0, dtype=np.int64), np.tile(small, 9), np.zeros(0, dtype=np.int64)]
    store = built(tmp_path / "some", shards, 9)
    alone = built(tmp_path / "alone", shards[1:2], 9)
    for end in range(2, 9):
        asked = small[None, :end], np.array([end]), Wanted(1, 16, 8, 1, 7)
        drafts, expected = store.lookup(*asked), alone.lookup(*asked)
        assert drafts.tokens.tolist() == expected.tokens.tolist()
        assert drafts.live.any()


@pytest.mark.parametrize(
    ("corpus", "out", "tokenizer", "words"),
    [
        ("tokens.npy", "models", "models/target", "models: the folder is not empty and holds no"),
        ("tokens.npy", "tokens.npy", "models/target", "this is a file"),
        ("binary.txt", "new", "models/target", "no UTF-8 text: byte 3"),
        ("cut.txt", "new", "models/target", "no UTF-8 text: byte 1"),
        ("text.txt", "new", "nope", "nope: there is no such folder"),
    ],
)
def test_nothing_is_written_where_it_may_not_be_or_of_what_is_no_text(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    corpus: str,
    out: str,
    tokenizer: str,
    words: str,
) -> None:
    pytest.importorskip("transformers")
    write_70b(tmp_path / "models")
    np.save(tmp_path / "tokens.npy", np.arange(100))
    (tmp_path / "binary.txt").write_bytes(b"ab\n\xff\xfe\x00\x01")
    (tmp_path / "cut.txt").write_bytes(b"a\xc3")
    (tmp_path / "text.txt").write_text("some text\n")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datastores, "TEXT_PIECE", 4)
    with pytest.raises(UsageError, match=words):
        datastores.build_datastore(corpus, out, tokenizer)
    if out == "models":
        with pytest.raises(UsageError, match="holds no store"):
            datastores.build_states(corpus, out, tokenizer)
    assert sorted(tmp_path.rglob("*")) == before
