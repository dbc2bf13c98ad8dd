"""Ready trees of n-grams: those of a corpus by the obvious count, cut to what is asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from specplan.ir.errors import UsageError
from specplan.runtime.sources.datastore_build import build_datastore
from specplan.runtime.sources.source import SourceDrafts, Wanted
from specplan.runtime.sources.trees import Trees, build_trees

VOCABULARY = 5
DOCUMENTS = [np.random.default_rng(seed).integers(0, VOCABULARY, 60) for seed in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trees")
    build_datastore(made, [lambda: DOCUMENTS], VOCABULARY, "texts", lambda *_: None)
    return made


def paths(drafts: SourceDrafts) -> set[tuple[int, ...]]:
    """Paths of the nodes of the first tree."""
    by_node: list[tuple[int, ...]] = []
    for token, parent, live in zip(
        drafts.tokens[0].tolist(), drafts.parents[0].tolist(), drafts.live[0].tolist(), strict=True
    ):
        by_node.append((*(by_node[parent] if parent >= 0 else ()), token) if live else ())
    return {path for path in by_node if path}


def counted(run: tuple[int, ...], length: int) -> Counter[tuple[int, ...]]:
    """How often each continuation follows a run, up to the end of its document."""
    counts: Counter[tuple[int, ...]] = Counter()
    for text in (document.tolist() for document in DOCUMENTS):
        for start in range(len(text) - len(run)):
            end = start + len(run)
            if tuple(text[start:end]) == run:
                counts.update(
                    {tuple(text[end : end + n + 1]) for n in range(min(length, len(text) - end))}
                )
    return counts


def drafted(source: Trees, text: tuple[int, ...], **wanted: int) -> set[tuple[int, ...]]:
    drafts = source.lookup(np.array([text]), np.array([len(text)]), Wanted(1, 3, **wanted))
    return paths(drafts)


def test_trees_are_the_commonest_continuations(folder: Path) -> None:
    assert build_trees(folder, 10_000, length=4, nodes=16) > 100
    source = Trees(folder, 3)
    for text in ((0,), (1, 2), (3, 0, 1), (4, 4, 2)):
        run = next(text[i:] for i in range(len(text)) if counted(text[i:], 1))
        counts = counted(run, 4)
        tree = drafted(source, text, children=16, length=4, nodes=16)
        assert len(tree) == min(16, len(counts)) and tree <= counts.keys()
        least = min(counts[path] for path in tree)
        assert all(counts[path] <= least for path in counts.keys() - tree)
        small = drafted(source, text, children=2, length=2, nodes=4)
        assert small <= tree and max(map(len, small)) <= 2 and len(small) <= 4
        assert max(Counter(path[:-1] for path in small).values()) <= 2
        chains = drafted(source, text, children=2, length=3)
        assert chains <= tree and Counter(map(len, chains))[1] == min(2, Counter(map(len, tree))[1])


def test_the_commonest_runs_are_kept_and_longer_ends_come_first(folder: Path) -> None:
    assert build_trees(folder, 5) == 5
    few = Trees(folder, 3)
    assert [bool(drafted(few, (one,), length=1)) for one in range(5)] == [True] * 5
    whole = drafted(few, (1,), children=64, length=8, nodes=64)
    assert drafted(few, (0, 1), children=64, length=8, nodes=64) == whole
    assert few.most_bytes < 5 * 1000
    build_trees(folder, 30)
    more = Trees(folder, 3)
    assert drafted(more, (0, 1), children=64, length=8, nodes=64) != whole
    assert drafted(Trees(folder, 1), (0, 1), children=64, length=8, nodes=64) == whole


def test_a_datastore_without_trees_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no ready trees"):
        Trees(tmp_path, 3)
    build_datastore(tmp_path, [lambda: DOCUMENTS], 1 << 22, "wide", lambda *_: None)
    with pytest.raises(UsageError, match="do not fit"):
        build_trees(tmp_path, 10)
