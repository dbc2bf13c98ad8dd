"""Sequoia's files, written with torch and read without pickle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specplan.importing import import_acceptance
from specplan.ir.errors import UsageError
from specplan.planner.trees import AcceptanceTable, search_trees
from tests.cost_models.small_trees import expansion

torch = pytest.importorskip("torch")


@pytest.mark.shared
def test_the_demo_vector(tmp_path: Path, shared: Path) -> None:
    """Values of the best trees by size and levels: facts sheet, equal to Sequoia's own search."""
    rows = json.loads((shared / "data/published_dev.json").read_text())
    (row,) = (row for row in rows if row["metric"] == "positional_acceptance_vector")
    path = tmp_path / "acceptance-rate-vector.pt"
    torch.save(torch.tensor(row["value"]), path)
    profile = import_acceptance(path, "draft", temperature=0.6, rounds=667)
    assert profile.provenance["format"] == "sequoia"
    assert profile.key.how == "draw_distinct"
    assert [profile.hazard(depth, 0) for depth in (1, 7)] == pytest.approx([0.634183] * 2)
    assert profile.hazard(1, 31) == pytest.approx(0.001499, abs=1e-6)
    assert profile.hazard(1, 32) == 0.0  # the rejection is none of the ranks
    values = {(8, 6): 2.7322, (16, 8): 3.1303, (32, 9): 3.5007, (64, 10): 3.8523, (128, 10): 4.1921}
    search = search_trees(AcceptanceTable.of_hazard(profile.hazard, 1, 32), 127, 9)
    for (size, levels), value in values.items():  # the root counts in both
        tree = search.tree(size - 1, levels - 1)
        rate = profile.tokens_per_round(tree.parents, tree.ranks)
        assert rate.mean == pytest.approx(value, abs=6e-5)
        assert rate.low < rate.mean < rate.high
    chain = profile.tokens_per_round((-1, 0, 1), (0, 0, 0))
    assert chain.mean == pytest.approx(2.2914317, abs=4e-6)


def test_greedy_vectors_have_the_best_ranks(tmp_path: Path) -> None:
    path = tmp_path / "vector.pt"
    torch.save(torch.tensor([0.0, 0.6, 0.2, 0.1, 0.1]), path)
    profile = import_acceptance(path, "draft")
    assert profile.key.how == "best"
    assert "assumed" in profile.source
    assert profile.tokens_per_round(*expansion(1, 1, 3, 1, 1, 1, 1, 1)).mean == pytest.approx(
        2.732209, abs=2e-6
    )


def test_growmaps_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "growmap.pt"
    torch.save({"Successors": [[1, 2], [], []], "size": 3, "mask": torch.eye(3)}, path)
    with pytest.raises(UsageError, match="it is a growmap, which is a tree"):
        import_acceptance(path, "draft")


def test_what_is_no_vector(tmp_path: Path) -> None:
    path = tmp_path / "vector.pt"
    for saved, words in (
        (torch.ones(2, 2), "size"),
        ({"weight": torch.ones(2)}, "weight"),
        (torch.tensor([0.0, 0.6, 0.2]), "sum to 0.8"),
        (torch.tensor([0.6, 0.2, 0.2]), "begin with 0.6"),
        (torch.tensor([0.0, float("nan"), 0.2]), "nan"),
        (torch.tensor([0.0, 1.5, -0.5]), "1.5"),
        ([0.0, 0.6, 0.4], "list"),
    ):
        torch.save(saved, path)
        with pytest.raises(UsageError, match=words) as caught:
            import_acceptance(path, "draft")
        assert caught.value.remedy
