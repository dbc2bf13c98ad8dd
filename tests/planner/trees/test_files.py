"""Growmaps and choice lists: round trips, torch as the other side, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.sequoia_demo import DEMO
from specplan.ir.errors import UsageError
from specplan.planner.trees import (
    AcceptanceTable,
    StaticTree,
    chain,
    expansion_tree,
    read_choices,
    read_growmap,
    search_trees,
    write_choices,
    write_growmap,
)
from specplan.planner.trees.growmap import Growmap
from tests.planner.trees.laws import rows, vector

SMALL = expansion_tree((2, 1))


def test_the_parts_of_a_growmap() -> None:
    tree = StaticTree((-1, -1, 0), (0, 1, 0))
    parts = Growmap(tree).parts
    assert parts["roots"] == [[0], [1, 2], [3]]
    assert parts["branches"] == [[2], [1, 0], [0]]
    assert parts["Successors"] == [[1, 2], [3], [], []]
    assert parts["mask"].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    assert (parts["depth"].tolist(), parts["size"]) == ([0, 1, 1, 2], 4)
    assert Growmap(chain(0)).parts["Successors"] == [[]]


def test_torch_reads_what_is_written(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for tree in (chain(0), SMALL, search_trees(vector(*DEMO), 300, 9).tree(300, 9)):
        write_growmap(tmp_path / "map.pt", tree)
        loaded = torch.load(tmp_path / "map.pt", weights_only=True)
        parts = Growmap(tree).parts
        assert list(loaded) == list(parts)
        for name in ("roots", "branches", "Successors", "size"):
            assert loaded[name] == parts[name]
        for name in ("mask", "depth"):
            assert loaded[name].dtype == torch.int64
            assert np.array_equal(loaded[name].numpy(), parts[name])


def test_the_same_tree_is_the_same_file(tmp_path: Path) -> None:
    for name in ("map.pt", "map.json"):
        write_growmap(tmp_path / name, SMALL)
        first = (tmp_path / name).read_bytes()
        write_growmap(tmp_path / name, SMALL)
        assert (tmp_path / name).read_bytes() == first
    with pytest.raises(UsageError):
        write_growmap(tmp_path / "map.txt", SMALL)


@settings(max_examples=30)
@given(rows(ranks=5))
def test_growmaps_come_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[float]]
) -> None:
    tree = search_trees(AcceptanceTable.of_rows(table), 20, 5).tree(20, 5)
    for name in ("map.pt", "map.json"):
        path = tmp_path_factory.mktemp("growmap") / name
        write_growmap(path, tree)
        assert read_growmap(path) == tree


def test_torch_growmaps_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    parts = Growmap(SMALL).parts
    tensors = {name: torch.tensor(parts[name]) for name in ("mask", "depth")}
    torch.save(parts | tensors, tmp_path / "map.pt")
    assert read_growmap(tmp_path / "map.pt") == SMALL


def test_no_growmap(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    good = {"Successors": [[1, 2], [], []], "size": 3}
    path.write_text(json.dumps(good))
    assert read_growmap(path) == expansion_tree((2,))
    wrong: list[object] = [3, [], {}, good | {"size": 4}, good | {"Successors": [[1, 1], [], []]}]
    wrong += [good | {"mask": mask} for mask in ([[1]], "x", [[1, 0], [1]], np.eye(3).tolist())]
    for content in wrong:
        path.write_text(json.dumps(content))
        with pytest.raises(UsageError):
            read_growmap(path)
    path.write_text("[" * 9999)
    with pytest.raises(UsageError):
        read_growmap(path)


@settings(max_examples=30)
@given(rows(ranks=5))
def test_choice_lists_come_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[float]]
) -> None:
    tree = search_trees(AcceptanceTable.of_rows(table), 20, 5).tree(20, 5)
    path = tmp_path_factory.mktemp("choices") / "choices.json"
    write_choices(path, tree)
    assert read_choices(path) == tree
    assert json.loads(path.read_text()) == [list(ranks) for ranks in tree.paths]


def test_choice_lists_of_a_python_file(tmp_path: Path) -> None:
    path = tmp_path / "choices.py"
    path.write_text(
        "import os  # never executed\n"
        "small = [[0], [0, 0], [1]]\n"
        "medium = [(0,), [1], [0, 0], [0, 1], [1, 0]]\n"
        "computed = [[i] for i in range(3)]\n"
        "os._exit(3)\n"
    )
    assert read_choices(path, "small").parents == (-1, -1, 0)
    assert len(read_choices(path, "medium")) == 5
    with pytest.raises(UsageError, match="small, medium"):
        read_choices(path)
    with pytest.raises(UsageError, match="computed"):
        read_choices(path, "computed")
    path.write_text("only = [[0], [0, 0]]")
    assert read_choices(path) == chain(2)


NO_LISTS = (
    *("", "{", "[0, 1]", "[[0], [0, 0, 0]]", "[[1]]", "[[0], [0]]", "[[-1]]", "[[0.5]]"),
    *("[[]]", "[[True]]", "[['a']]", "x = 3", "[" * 9999),
)


@pytest.mark.parametrize("text", NO_LISTS, ids=range(len(NO_LISTS)))
def test_no_choice_list(tmp_path: Path, text: str) -> None:
    path = tmp_path / "choices.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_choices(path)
    with pytest.raises(UsageError):
        read_choices(tmp_path / "missing.json")
