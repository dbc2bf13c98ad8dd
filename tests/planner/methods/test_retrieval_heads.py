"""Heads that stream and heads that read everything: gates, plans, choices, and prices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.engines.structure import read_structure
from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.rounds.demands import ForwardDemand, round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import round_cost
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import possible_drafters
from specplan.planner.drafters.gates import read_gates, retrieval_heads, write_gates
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods.retrieval_heads import METHOD, RetrievalHeadsOptions
from specplan.planner.search.search import search
from tests.planner.example_facts import SEVEN_BILLION, example_facts, workload

GROUPED = SEVEN_BILLION | {"num_hidden_layers": 4, "num_key_value_heads": 2}
HEADS = ("head.1.0", "head.3.1")
GIVEN = SmallCache("target", 256, "by_head", HEADS)
TABLE = "0.1\t0.3\n0.9\t0.2\n\n0.0\t0.30\n1.0e-1\t0.8\n"
"""As `numpy.savetxt(..., delimiter="\\t")` writes the authors' gates."""


def facts_of(folder: Path, **changes: object) -> ProblemFacts:
    (folder / "gates.tsv").write_text(TABLE)
    return example_facts(folder, target=GROUPED, gates="gates.tsv", **changes)  # type: ignore[arg-type]


def test_gates_are_read_as_they_are_published_and_written(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    assert facts.problem.gates == tmp_path / "gates.tsv"
    gates = read_gates(facts.problem.gates, facts.target)
    assert gates == ((0.1, 0.3), (0.9, 0.2), (0.0, 0.3), (0.1, 0.8))
    write_gates(tmp_path / "again.tsv", gates)
    assert read_gates(tmp_path / "again.tsv", facts.target) == gates
    assert retrieval_heads(gates, 0.25) == HEADS
    assert retrieval_heads(gates, 0.375) == ("head.0.1", *HEADS), "of equals the earlier"
    assert retrieval_heads(gates, 0.0) == ()
    assert len(retrieval_heads(gates, 1.0)) == 8


@pytest.mark.parametrize("text", ["", "0.1 0.2", "0.5\t0.5\n" * 3, "0.5\n" * 4, "a\tb\n" * 4])
def test_gates_of_other_models_are_refused(text: str, tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    (tmp_path / "gates.tsv").write_text(text)
    with pytest.raises(UsageError) as caught:
        METHOD.drafters(facts)
    assert caught.value.where == "gates" and caught.value.remedy


def test_its_drafters_come_from_gates(tmp_path: Path) -> None:
    wanted = {
        SmallCache("target", budget, "by_head", heads)
        for budget in (64, 256)
        for heads in (HEADS, ("head.0.1", "head.1.0", "head.2.1", "head.3.1"))
    }
    facts = facts_of(tmp_path, methods=["retrieval_heads"])
    assert set(METHOD.drafters(facts)) == wanted <= set(possible_drafters(facts))
    (unmeasured,) = METHOD.choices(facts)
    assert isinstance(unmeasured, Refusal) and "give workload.prompts" in unmeasured.reason
    bare = example_facts(tmp_path, target=GROUPED)
    assert METHOD.drafters(bare) == ()
    (refused,) = METHOD.choices(bare)
    assert isinstance(refused, Refusal) and "specplan profile gates" in refused.reason
    for wrong in ("head.4.0", "head.0.2"):
        with pytest.raises(UsageError, match="no heads are told apart"):
            acceptance_key(bare.problem, bare.shapes, replace(GIVEN, heads=(wrong,)))


def test_most_heads_read_the_budget_and_the_others_the_text(tmp_path: Path) -> None:
    """Bytes of keys and values are those of both kinds of head; no memory is taken for a view."""
    profile = AcceptanceProfile.from_hazards([[0.9]], key=AcceptanceKey(GIVEN), trials=1000)
    facts = facts_of(tmp_path, given={GIVEN: profile}, backend="none")
    (family,) = METHOD.choices(facts)
    assert isinstance(family, Family) and len(family.settings) == 8
    options = family.settings[1]
    assert isinstance(options, RetrievalHeadsOptions)
    assert options.words == (
        "chain of 2 by the target with 256 cached tokens, the whole text in 2 heads"
    )
    assert METHOD.drafter(facts, options) == GIVEN
    plan = METHOD.plan(facts, options)
    policy = "policy=by_head(budget=256, sink=16, retrieval=[head.1.0, head.3.1])"
    assert f"forward target %f cache=@kv pending=1 write=scratch {policy}" in print_plan(plan)
    assert refusals(plan, CAPABILITIES) == ()
    assert "heads that read a part of the text" in str(read_structure(plan))
    demands = round_demands(plan, plan.rounds[0])
    forwards = [step for step in demands.steps if isinstance(step, ForwardDemand)]
    for context, read in ((4000, 0.25 * 4000 + 0.75 * 256), (100, 100)):
        cost = round_cost(demands, RoundPricer(facts.device, facts.shapes, 1, context), {})
        drafts = [
            forward_cost(facts.target, 1, 1, read + one.drafted_before, 1) for one in forwards[:2]
        ]
        whole = forward_cost(facts.target, 1, 3, context, 3)
        assert cost.kv_bytes == pytest.approx(whole.kv_bytes + sum(one.kv_bytes for one in drafts))
    assert [(one.budget, one.whole_heads) for one in forwards] == [(256, 2), (256, 2), (None, 0)]
    estimate = Pricer(
        facts.device, facts.shapes, batch=2, prompt_tokens=2000, output_tokens=32
    ).estimate(plan, profile)
    assert isinstance(estimate, Estimate)
    caches = [part.name for part in estimate.memory.parts if part.name.startswith("cache")]
    assert caches == ["cache @kv"]


def test_it_pays_at_long_texts(tmp_path: Path) -> None:
    profile = AcceptanceProfile.from_hazards([[0.9]], key=AcceptanceKey(GIVEN), trials=1000)
    gains = []
    for context in (300, 3500):
        asked = workload(batch_sizes=[64], prompt_tokens=context)
        facts = facts_of(
            tmp_path, given={GIVEN: profile}, workload=asked, methods=["retrieval_heads"],
            backend="none",
        )  # fmt: skip
        result = search(facts)
        best = next(c for c in result.candidates if c.drafter == GIVEN and c.priced)
        gains.append(result.plain.estimates[0].seconds_per_token.median
                     / best.estimates[0].seconds_per_token.median)  # fmt: skip
    assert gains[0] < gains[1]
