"""Blocks that are searched for while decoding: what is offered, and what plans say."""

from __future__ import annotations

from pathlib import Path

from specplan.ir.plan import SourceState
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods.swift import METHOD, SwiftOptions
from specplan.planner.who_drafts import leaves_blocks_out
from specplan.runtime.sources.registry import new_source
from specplan.runtime.sources.skip_sets import SkipSets
from tests.planner.example_facts import SEVEN_BILLION, example_facts


def facts_of(folder: Path, layers: int, temperature: float = 0.0) -> ProblemFacts:
    target = SEVEN_BILLION | {"num_hidden_layers": layers}
    return example_facts(folder, target=target, temperature=temperature, methods=["swift"])


def test_it_is_offered_where_it_is_named_and_searches_nothing_beforehand(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, 32)
    (family,) = METHOD.choices(facts)
    assert isinstance(family, Family)
    assert [METHOD.proposer(options) for options in family.settings] == [
        f"target+swift{share}_{length}" for share in (30, 45) for length in (2, 4, 6)
    ]
    assert not leaves_blocks_out(facts.problem)
    (refusal,) = METHOD.choices(example_facts(tmp_path))
    assert isinstance(refusal, Refusal) and 'name "swift" in methods' in refusal.reason


def test_a_target_without_inner_layers_is_refused(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, 2)
    (refusal,) = METHOD.choices(facts)
    assert isinstance(refusal, Refusal) and "no layer between its first" in refusal.reason
    assert METHOD.proposers(facts.shapes) == ()
    assert METHOD.rehearsal(facts, "target+swift30_2") is None


def test_plans_leave_out_a_share_of_the_inner_layers(tmp_path: Path) -> None:
    for layers, share, blocks in ((3, 30, 1), (32, 30, 9), (32, 45, 13), (80, 45, 35)):
        plan = METHOD.plan(facts_of(tmp_path / str(layers), layers), SwiftOptions(share, 4))
        (state,) = (state for state in plan.states if isinstance(state, SourceState))
        source = new_source(state, 10)
        assert isinstance(source, SkipSets)
        assert (len(source.best.attentions), len(source.best.mlps)) == (blocks, blocks)
        assert source.settings.layers == layers


def test_draws_depend_on_earlier_requests_and_the_plan_says_so(tmp_path: Path) -> None:
    greedy, drawn = (
        METHOD.plan(facts_of(tmp_path, 32, temperature), SwiftOptions(45, 4))
        for temperature in (0.0, 0.8)
    )
    assert greedy.assumptions.reproducible and not drawn.assumptions.reproducible
    assert [item.name for item in drawn.rounds] == ["search", "decode"]
