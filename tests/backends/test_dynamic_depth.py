"""Trees grown until their beam is improbable: what runs is the policy, told without tensors."""

from __future__ import annotations

from pathlib import Path

import torch

from specplan.backends.ops.tensors.values import Tree
from specplan.ir.values import Value
from specplan.planner.methods.dynamic_depth import METHOD, DynamicDepthOptions
from tests.backends.pairs import load_pair, save_pair
from tests.backends.test_dynamic_trees import RAGGED, DraftProbabilities, rounds_of, token_paths
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.beam_growth import beam_draft
from tests.planner.example_facts import example_facts

torch.set_num_threads(1)


def test_what_is_drafted_is_the_policys_tree(tmp_path: Path) -> None:
    """Depth by request: where the beam is improbable, and the tree of the best nodes so far."""
    save_pair(tmp_path / "sure", scale=0.8)
    models = load_pair(tmp_path / "sure")
    facts = example_facts(tmp_path / "facts")
    depths = set()
    for mass, nodes, beam in ((0.2, 6, 3), (0.6, 4, 2)):
        plan = METHOD.plan(facts, DynamicDepthOptions("draft", nodes, beam, mass, layers=5))
        for texts, _, scope in rounds_of(plan, models, RAGGED, 3):
            pool, tree = scope[Value("pool")], scope[Value("c")]
            assert isinstance(pool, Tree) and isinstance(tree, Tree)
            for row, text in enumerate(texts):
                draft = DraftProbabilities(models["draft"], text)
                drafted = beam_draft(draft, beam, 5, nodes, least_mass=mass)
                wanted = {draft.tokens_of(ranks) for ranks in drafted.tree.paths}
                assert set(token_paths(tree, row).values()) == wanted
                assert len(token_paths(pool, row)) == drafted.pool
                depths.add(drafted.layers)
    assert len(depths) > 2


def test_sampled_output_has_the_targets_law(tmp_path: Path) -> None:
    save_pair(tmp_path / "small", VOCABULARY, scale=0.15)
    models = load_pair(tmp_path / "small")
    facts = example_facts(tmp_path / "facts", temperature=0.8)
    plan = METHOD.plan(facts, DynamicDepthOptions("draft", 4, 2, 0.5, layers=3))
    assert p_value(plan, models, law_of_texts(models["target"]), seeds=1500) > 1e-4
