"""The published search's shipped trees: what their level counts say, against ours.

The 101 growmaps of github.com/Infini-AI-Lab/Sequoia at 0ff3ff7 are known by their nodes per level.
The vectors that the searched ones were made for are not published, but one is, the demo's. Under
it, and under others, no tree with a growmap's level counts may be worth more than ours of as many
nodes and levels; named families must have exactly the counts of their formula.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.sequoia_demo import DEMO
from specplan.planner.trees import (
    AcceptanceTable,
    StaticTree,
    TreeObjective,
    TreeSearch,
    chain,
    search_trees,
    tree_of_paths,
)
from tests.planner.trees.tables import listed_times, separate_chains

pytestmark = pytest.mark.shared

RANKS = 32
MEASURED = AcceptanceTable.of_rows([DEMO])


@pytest.fixture(scope="module")
def growmaps(shared: Path) -> list[tuple[str, list[int]]]:
    rows = json.loads((shared / "data" / "published_dev.json").read_text())
    return [
        (Path(row["source"]).name.removesuffix(".pt"), row["value"])
        for row in rows
        if row["metric"] == "nodes_per_level"
    ]


@pytest.fixture(scope="module")
def published(shared: Path) -> list[dict[str, Any]]:
    return json.loads((shared / "data" / "published_dev.json").read_text())


def counts_of(tree: StaticTree) -> list[int]:
    """Nodes per level, the root first."""
    counted = Counter(tree.depths)
    return [1, *(counted[depth] for depth in range(1, tree.depth + 1))]


def best_with_counts(table: AcceptanceTable, counts: list[int]) -> StaticTree:
    """The best tree with so many nodes per level, for a table that is ordered by rank.

    Level by level the most probable children: any other nodes of a level are, place by place, no
    more probable, and offer less to the levels below.
    """
    paths: list[tuple[int, ...]] = []
    above: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
    for depth, count in enumerate(counts[1:], start=1):
        offered = [
            (reach * table(depth, rank), (*path, rank))
            for reach, path in above
            for rank in range(table.hazards.shape[1])
        ]
        above = sorted(offered, key=lambda node: (-node[0], node[1]))[:count]
        paths.extend(path for _, path in above)
    return tree_of_paths(paths)


def test_there_are_101_and_their_counts_are_trees(growmaps: list[tuple[str, list[int]]]) -> None:
    assert len(growmaps) == 101
    for name, counts in growmaps:
        assert counts[0] == 1 and min(counts) >= 1
        widest = 128 if re.fullmatch(r"\d+x\d+-tree", name) else RANKS
        assert all(n <= widest * above for above, n in pairwise(counts)), name


def test_named_families_have_the_counts_of_their_formula(
    growmaps: list[tuple[str, list[int]]],
) -> None:
    count = 0
    for name, counts in growmaps:
        if sequences := re.fullmatch(r"(\d+)x(\d+)-tree", name):
            assert counts_of(separate_chains(*map(int, sequences.groups()))) == counts
        elif length := re.fullmatch(r"(\d+)-chain", name):
            # `n-chain` has n nodes, the root counted
            assert counts_of(chain(int(length[1]) - 1)) == counts
        else:
            continue
        count += 1
    assert count == 38


@pytest.mark.parametrize("first", [0.45, 0.634183, 0.8])
def test_no_tree_with_a_growmaps_counts_beats_ours(
    growmaps: list[tuple[str, list[int]]], first: float
) -> None:
    # the demo's vector in order, its first rate changed and the others scaled to the same sum
    rest = np.sort(DEMO[1:])[::-1] * (sum(DEMO) - first) / sum(DEMO[1:])
    rates = np.minimum.accumulate(np.concatenate(([first], rest)))
    table = AcceptanceTable(np.array([[*rates, *[rates[-1] / 2] * 96]]))
    searches: dict[int, TreeSearch] = {}
    measured = {len(c) - 1: search_trees(MEASURED, 600, len(c) - 1) for _, c in growmaps}
    for name, counts in growmaps:
        nodes, depth = sum(counts) - 1, len(counts) - 1
        search = searches.setdefault(depth, search_trees(table, 600, depth))
        shaped = best_with_counts(table, counts)
        assert counts_of(shaped) == counts
        value = shaped.value(table)
        assert value <= search.values[depth, nodes] + 1e-12, name
        # the demo's own vector, which rises here and there, makes any such tree no better either
        as_measured = shaped.value(MEASURED)
        assert as_measured <= measured[depth].values[depth, nodes] + 1e-12, name
        # and where our tree has these very counts, it is worth the same
        ours = search.tree(nodes, depth)
        if counts_of(ours) == counts:
            assert value == pytest.approx(search.values[depth, nodes], abs=1e-12)


def test_growmaps_of_one_pair_grow_with_their_budget(
    growmaps: list[tuple[str, list[int]]],
) -> None:
    # best trees of one ordered vector are nested, and so are ours: more nodes on every level
    shipped = dict(growmaps)
    for prefix in ("A100-CNN-68m-13b-stochastic-S", "L40-CNN-68m-13b-stochastic-S"):
        sizes = (4, 8, 16, 32, 64, 128, 256, 512)
        counts = [shipped[f"{prefix}{size}"] for size in sizes]
        assert [sum(row) for row in counts] == list(sizes)
        for small, large in pairwise(counts):
            assert all(a <= b for a, b in zip(small, large, strict=False))
    search = search_trees(AcceptanceTable(np.array([np.sort(DEMO)[::-1]])), 511, 11)
    grown = [counts_of(search.tree(size - 1, 11)) for size in sizes]
    for small, large in pairwise(grown):
        assert all(a <= b for a, b in zip(small, large, strict=False))


def test_the_demo_growmap_is_our_choice(
    growmaps: list[tuple[str, list[int]]], published: list[dict[str, Any]]
) -> None:
    vector = next(r for r in published if r["metric"] == "positional_acceptance_vector")["value"]
    assert vector[1:-1] == list(DEMO) and vector[0] == 0.0
    target = {1: 10.0, 2: 10.0, 4: 10.0, 8: 12.0, 16: 14.0, 32: 18.0}
    times = listed_times({size - 1: t for size, t in target.items()}, [0.3], overhead=0.3)
    choice = TreeObjective(AcceptanceTable.of_rows([vector[1:-1]]), 127, 9).best(times)
    name = next(name for name, _ in growmaps if "demo_tree" in name)
    assert counts_of(choice.tree) == dict(growmaps)[name]
