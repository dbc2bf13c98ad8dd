"""Who drafts, in which shape and when is read off the ops of a plan, never off its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specplan.backends.engines.structure import read_structure
from tests.backends.engines.examples import by_batch, plans, setting, shrinking_head, stopping
from tests.ir.plans_on_disk import NAMES, plan_of

EXPECTED = {
    "plain": ("none", "empty", 0, 0),
    "model": ("model", "chain", 4, 4),
    "model_drawn": ("model", "chain", 4, 4),
    "model_blocks": ("model", "chain", 4, 4),
    "model_bar": ("model", "chain", 10, 10),
    "model_success": ("model", "chain", 6, 6),
    "model_parallel": ("model", "chain", 4, 4),
    "automaton": ("automaton", "chain", 8, 8),
    "head": ("head", "chain", 3, 3),
    "modules": ("modules", "chain", 2, 2),
    "block": ("block", "chain", 5, 5),
    "text": ("text", "chain", 8, 8),
    "past": ("past", "chain", 8, 8),
    "first_layers": ("first_layers", "chain", 3, 3),
    "model_dynamic_tree": ("model", "dynamic tree", 8, 3),
    "head_dynamic_tree": ("head", "dynamic tree", 59, 6),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_who_drafts_what(name: str) -> None:
    plan = replace(plans()[name], name="another")
    drafting = read_structure(plan).longest
    assert (drafting.drafter, drafting.shape, drafting.tokens, drafting.depth) == EXPECTED[name]
    assert drafting.unusual == ()


def test_details_that_engines_get() -> None:
    longest = {name: read_structure(plan).longest for name, plan in plans().items()}
    assert longest["model"].models == ("draft",) and not longest["model"].drawn
    assert longest["model_drawn"].drawn
    assert longest["model_tree"].shape == "static tree" and longest["model_tree"].widest > 1
    assert longest["modules"].models == ("module_0",)
    assert longest["block"].block == 7
    assert longest["text"].match == (1, 8)
    assert longest["first_layers"].exit_layer == 1
    assert longest["head_dynamic_tree"].widest == 10
    assert longest["model_blocks"].rule == "block" and not longest["model_drawn"].rule
    assert longest["model_bar"].bar == 0.4 and longest["model_success"].first == 5
    assert (longest["model_parallel"].block, longest["model_parallel"].usual_form) == (4, "pard")
    stopped = setting(
        "adaptive_length", "up to 10 by first_layers(target, 1), until a token is below 0.4"
    )
    assert "stops early" in " ".join(read_structure(stopped).longest.unusual), "of the next token"


UNUSUAL = {
    "contrastive": "op mix",
    "early_exit_confident": "op measure",
    "growing_tree": "stops early",
    "judged_drafting": "stops early",
    "merged_trees": "op graft",
    "self_draft_view": "a reduced view of a cache",
    "sparse_cache_hierarchy": "a reduced view of a cache",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_of_the_language_has_a_structure(name: str) -> None:
    structure = read_structure(plan_of(name))
    assert structure.rounds and structure.ranges[-1][1] is None
    remarks = " ".join(words for item in structure.rounds.values() for words in item.unusual)
    if name in UNUSUAL:
        assert UNUSUAL[name] in remarks


def test_plans_of_the_language_that_stand_for_common_ones() -> None:
    longest = {name: read_structure(plan_of(name)).longest for name in NAMES}
    assert longest["draft_chain"].drafter == "model"
    assert longest["static_tree"].shape == "static tree"
    assert longest["skipped_layers"].drafter == "some_layers"
    assert longest["early_exit_verified"].drafter == "first_layers"
    assert longest["prompt_lookup"].drafter == "text"
    assert longest["block_drafter"].drafter == "block"


def test_ranges_of_batch_sizes() -> None:
    shrinking = read_structure(shrinking_head())
    assert shrinking.axes == {"batch"}
    assert shrinking.lengths == ((1, 4, 5), (5, None, 2))
    stops = read_structure(stopping("eagle3", "chain of 5 by head"))
    assert stops.lengths == ((1, 4, 5), (5, None, 0))
    same = setting("eagle3", "chain of 2 by head")
    three = read_structure(by_batch([("batch <= 2", same), ("batch <= 9", same), ("", same)]))
    assert three.lengths == ((1, None, 2),)


def test_a_schedule_by_context_says_so() -> None:
    long = by_batch(
        [
            ("context <= 100 and batch <= 2", setting("eagle3", "chain of 5 by head")),
            ("", setting("eagle3", "chain of 2 by head")),
        ]
    )
    assert read_structure(long).axes == {"batch", "context"}
