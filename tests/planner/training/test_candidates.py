"""Drafters that are not trained yet: priced by the plans that a trained one gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.models.drafter_configs import read_drafter_config
from specplan.cost_models.models.drafter_shapes import described_drafter
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.new_heads import eagle3_config
from specplan.ir.errors import UsageError
from specplan.planner.answer.untrained import duration, table_lines, untrained_line
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.search import search
from specplan.planner.search.what_if import what_if
from specplan.planner.training.candidates import (
    UntrainedDrafter,
    best_untrained,
    untrained_drafters,
)
from specplan.planner.training.costs import training_seconds
from specplan.planner.training.described import config_of, with_untrained
from specplan.planner.training.families import FAMILIES, HeadSize, Recipe
from tests.planner.big_models import LLAMA_70B
from tests.planner.example_facts import SEVEN_BILLION, example_facts, workload

LARGE_VOCABULARY = {"vocab_size": 128256}
LLAMA_8B = LLAMA_70B | {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def facts_of(folder: Path, target: dict[str, Any], **changes: Any) -> ProblemFacts:
    changes = {"workload": workload(batch_sizes=[1]), "backend": "none"} | changes
    return example_facts(folder, given={}, target=target, draft={**LARGE_VOCABULARY}, **changes)


def config(facts: ProblemFacts, one: UntrainedDrafter) -> dict[str, Any]:
    return config_of(facts.problem, one.family, one.layers, one.width, one.vocabulary)


def test_a_candidate_is_what_a_search_finds_with_its_config_and_the_prior(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, SEVEN_BILLION | LARGE_VOCABULARY)
    untrained = untrained_drafters(facts, ["eagle3"])
    best = untrained.candidates[0]
    assert (best.layers, best.width, best.vocabulary, best.published) == (1, 4096, 32000, True)
    assert best.pays_from is not None and best.low < best.gain < best.high
    for one in untrained.candidates:
        described = read_drafter_config(config(facts, one), facts.target, "head")
        decoder = described.decoder
        sizes = len(decoder.layers), decoder.hidden_size, decoder.vocab_size
        assert sizes == (one.layers, one.width, one.vocabulary)
    (tmp_path / "head").mkdir()
    (tmp_path / "head/config.json").write_text(json.dumps(config(facts, best)))
    known = facts_of(
        tmp_path,
        SEVEN_BILLION | LARGE_VOCABULARY,
        models={"target": {"path": "target"}, "drafts": [{"name": "head", "path": "head"}]},
        acceptance={"head": "prior"},
        methods=["eagle3"],
    )
    searched = search(known)
    assert searched.speedup.mean == pytest.approx(best.gain)
    assert (searched.speedup.low, searched.speedup.high) == pytest.approx((best.low, best.high))
    (row,) = what_if(known, [Model("head")], (None,))
    assert (row.pays_from, row.draft_tokens) == (best.pays_from, best.draft_tokens)


def test_sizes_families_and_reasons(tmp_path: Path) -> None:
    """A target of four layers: five of a block drafter are slower than it at any acceptance."""
    small = SEVEN_BILLION | LARGE_VOCABULARY | {"num_hidden_layers": 4}
    facts = facts_of(tmp_path, small, workload=workload(batch_sizes=[64]))
    untrained = untrained_drafters(facts)
    by_size = {(one.family, one.layers, one.vocabulary): one for one in untrained.candidates}
    left_out = {(one.family, one.layers): one.reason for one in untrained.left_out}
    assert "pays at no acceptance" in left_out["dflash", 5]
    reduced, full = by_size["eagle3", 1, 32000], by_size["eagle3", 1, 128256]
    assert reduced.pays_from < full.pays_from and reduced.gain >= full.gain
    assert reduced.train_seconds < full.train_seconds
    published = [one.published for one in untrained.candidates]
    assert published == sorted(published, reverse=True), "sizes with figures stand first"
    text = "\n".join(table_lines(untrained))
    assert "Left out: DFlash block drafter (5 x 4096, 128256 tokens" in text
    assert "EAGLE-3 head *" in text and "Nothing is published" in text
    with pytest.raises(UsageError, match="eagle3, dflash, medusa"):
        untrained_drafters(facts, ["eagle9"])


def test_the_best_that_is_not_listed_is_named(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, SEVEN_BILLION | LARGE_VOCABULARY)
    best = best_untrained(facts)
    assert best is not None and best.published and best.pays_from is None
    whole = untrained_drafters(facts, [best.family]).candidates[0]
    assert (best.gain, best.low, best.high) == (whole.gain, whole.low, whole.high)
    line = untrained_line(best)
    assert line.startswith("DFlash block drafter, not trained yet: would give ")
    assert line.endswith(f"({best.low:.1f}-{best.high:.1f}x)")
    listed = with_untrained(facts, FAMILIES["dflash"], HeadSize(5, 128256))[0]
    other = best_untrained(listed)
    assert other is not None and other.family == "eagle3"


def test_training_takes_as_long_as_published() -> None:
    """vllm-project/speculators: 5,000 UltraChat conversations, 5 epochs, 3 steps, 572 s on 2 H100.

    Their mean length is not published; 1,000 tokens are usual.
    """
    target = ModelShape.from_config(LLAMA_8B)
    head = described_drafter(eagle3_config(LLAMA_8B, "target"), target, "head").shape
    device = load_device("2xh100-sxm")
    stored = Recipe(5000, 5, 3.0, "speculators", stored=True)
    seconds = training_seconds(device, target, head, stored, 1000)
    assert 0.5 < seconds / 572 < 2.0
    computed = Recipe(5000, 5, 3.0, "speculators")
    assert training_seconds(device, target, head, computed, 1000) > 1.5 * seconds
    longer = training_seconds(device, target, head, stored, 2048)
    assert longer == training_seconds(device, target, head, stored, 5000), "long texts are cut"


def test_durations() -> None:
    assert [duration(x) for x in (None, 3.0, 200.0, 9000.0, 4e5, 1e7)] == [
        "-", "3.0 s", "3.3 min", "2.5 h", "4.6 days", "116 days",
    ]  # fmt: skip
