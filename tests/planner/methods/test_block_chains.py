"""Chains judged as a block: when they are measured and offered, their plans, and their prices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.cost_models.acceptance.drafters import Model, OwnRounds
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.ir.capabilities import refusals
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import later_drafters, possible_drafters, profiling_plan
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal, own_rounds
from specplan.planner.methods.draft_model import METHOD, BlockChainOptions
from specplan.planner.trees import chain
from specplan.planner.trees.candidates import worthwhile_chains
from tests.planner.example_facts import example_facts, made_up_lengths

NAMED = ["draft_model"]


def known(facts: ProblemFacts) -> ProblemFacts:
    """With profiles of what was measured last."""
    ran = {
        name: AcceptanceProfile(
            acceptance_key(facts.problem, facts.shapes, name), RoundsRun(made_up_lengths())
        )
        for name in later_drafters(facts)
    }
    return replace(facts, profiles={**facts.profiles, **ran})


def block(facts: ProblemFacts, length: int) -> OwnRounds:
    """The rounds of a chain that is judged as a block."""
    tree = chain(length)
    return own_rounds(facts, METHOD, BlockChainOptions("draft", tree.parents, tree.ranks))


def test_they_are_measured_where_the_method_is_named_and_chance_decides(tmp_path: Path) -> None:
    facts = example_facts(tmp_path, temperature=0.8, methods=NAMED)
    near = worthwhile_chains(facts, Model("draft"), tuple(range(1, 17)))
    wanted = dict.fromkeys((near[len(near) // 2], near[-1]))
    assert later_drafters(facts) == tuple(block(facts, length) for length in wanted)
    assert not set(later_drafters(facts)) & set(possible_drafters(facts))
    assert later_drafters(example_facts(tmp_path, temperature=0.8)) == ()
    assert later_drafters(example_facts(tmp_path, methods=NAMED)) == ()
    _, blocks, _ = METHOD.choices(facts)
    assert isinstance(blocks, Refusal) and "name draft_model in methods" in blocks.reason
    unknown = replace(facts, profiles={})  # a device is measured for the shortest and the longest
    assert later_drafters(unknown) == (block(facts, 2), block(facts, 16))


def test_their_plans_are_those_of_chains_but_for_the_rule(tmp_path: Path) -> None:
    facts = known(example_facts(tmp_path, temperature=0.8, methods=NAMED))
    chains, blocks, _ = METHOD.choices(facts)
    assert isinstance(chains, Family) and isinstance(blocks, Family)
    assert blocks.name == "chain by draft, judged as a block"
    assert len(set(chains.settings) & set(blocks.settings)) == 0 < len(blocks.settings)
    by_length = {len(options.tree): options for options in chains.settings}
    for options in blocks.settings:
        plan = METHOD.plan(facts, options)
        token = METHOD.plan(facts, by_length[len(options.tree)])
        assert print_plan(plan) == print_plan(token).replace("rule=token", "rule=block")
        assert verify_plan(plan) == () == tuple(refusals(plan, CAPABILITIES))
        assert options.words.endswith("by draft, judged as a block")
        assert options.as_dict()["rule"] == "block"
        drafter = METHOD.drafter(facts, options)
        assert drafter is not None and profiling_plan(facts, drafter) == plan
    alone = replace(facts, profiles={block(facts, 4): facts.profiles[Model("draft")]})
    assert [f.name for f in METHOD.choices(alone) if isinstance(f, Family)] == [blocks.name]


def test_their_price_is_that_of_their_own_rounds(tmp_path: Path) -> None:
    """Tokens by the rounds that ran with the rule; the same seconds as judging token by token."""
    facts = known(example_facts(tmp_path, temperature=0.8, methods=NAMED))
    _, blocks, _ = METHOD.choices(facts)
    assert isinstance(blocks, Family)
    options = blocks.settings[0]
    plan, drafter = METHOD.plan(facts, options), METHOD.drafter(facts, options)
    assert drafter is not None
    tokens = []
    for profile in (facts.profiles[drafter], facts.profiles[Model("draft")]):
        estimate = Pricer(
            facts.device, facts.shapes, batch=1, prompt_tokens=40, output_tokens=32
        ).estimate(plan, profile)
        assert isinstance(estimate, Estimate)
        tokens.append(estimate.tokens_per_round.mean)
    lengths = facts.profiles[drafter].tokens_per_round(options.parents, options.ranks)
    assert tokens[0] == pytest.approx(lengths.mean, rel=0.05) and tokens[0] != tokens[1]
