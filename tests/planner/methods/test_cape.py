"""CaPE: candidates at each place of the chain, by the draft model's own confidence."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from specplan.backends.ops.tensors.values import Tree
from specplan.ir.values import Value
from specplan.planner.methods.cape import BANDS, METHOD, CapeOptions
from tests.backends.pairs import load_pair, save_pair
from tests.backends.test_dynamic_trees import RAGGED, logits_after, rounds_of, token_paths
from tests.planner.example_facts import example_facts

LENGTH = 3


@pytest.mark.parametrize("nodes", [7 * LENGTH, 6])
def test_candidates_are_those_of_the_papers_table(nodes: int, tmp_path: Path) -> None:
    """Counts of every place, round after round, and as many nodes of them as a setting has."""
    save_pair(tmp_path, 61, scale=0.14, sureness=3.0)
    models = load_pair(tmp_path)
    plan = METHOD.plan(example_facts(tmp_path / "facts"), CapeOptions("draft", LENGTH, nodes))
    counts = set[int]()
    for texts, _, scope in rounds_of(plan, models, RAGGED, 4):
        tree = scope[Value("c")]
        assert isinstance(tree, Tree)
        for row, text in enumerate(texts):
            wanted, chain = set[tuple[int, ...]](), tuple[int, ...]()
            for _ in range(LENGTH):
                logits = logits_after(models["draft"], text, chain)
                sure = float(logits.softmax(0).max())
                count = next((count for bar, count in BANDS if sure <= bar), 1)
                ranked = logits.argsort(descending=True, stable=True).tolist()
                wanted |= {(*chain, token) for token in ranked[:count]}
                counts.add(count)
                chain = (*chain, ranked[0])
            drafted = set(token_paths(tree, row).values())
            assert drafted <= wanted and len(drafted) == min(nodes, len(wanted))
            assert nodes < len(wanted) or chain in drafted
    assert len(counts) > 1, "confidence differs"
