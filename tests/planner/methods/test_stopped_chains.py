"""Numbers that move the end of a chain from round to round, against the papers' own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.cost_models.acceptance.drafters import OwnRounds, SkipBlocks, SmallCache
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.blocks import Skips
from specplan.ir.capabilities import refusals
from specplan.ir.formula import evaluate
from specplan.ir.ops import Compute, Load, Measure, Repeat, Store
from specplan.ir.plan import Plan, ValueState
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.values import Value
from specplan.planner.drafters.candidates import later_drafters, profiling_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, discover_methods
from tests.planner.example_facts import example_facts


def plan_of(folder: Path, method: str, words: str) -> Plan:
    facts = example_facts(folder, methods=[method])
    chain_method = discover_methods()[method]
    (family,) = chain_method.choices(facts)
    assert isinstance(family, Family)
    (options,) = (one for one in family.settings if one.words == words)
    return chain_method.plan(facts, options)


def after_round(
    plan: Plan, values: dict[str, float], accepted: int, drafted: int
) -> dict[str, float]:
    """What a round leaves in its value states, given what it found there."""
    known: dict[Value, float] = {}
    left = dict(values)
    for op in plan.rounds[0].ops:
        match op:
            case Load():
                known[op.results[0]] = values[op.state]
            case Measure():
                counts = {"accepted": accepted, "batch_max": accepted, "count": drafted}
                known[op.results[0]] = counts[op.kind.name]
            case Compute():
                given = {name: known[value] for name, value in op.operands}
                known[op.results[0]] = float(evaluate(op.formula, given))
            case Store():
                left[op.state] = known[op.value]
    return left


PARTS = (
    SkipBlocks("target", Skips.of([1], [1])),
    SmallCache("target", 512),
    SmallCache("draft", 256),
)
BY_SKIPPING = """\
%b = load @bar
%h = load @rate
%t0 = root
%c = repeat 6 (%t = %t0) {
  %f = pick %t of=newest
  %q = forward target %f cache=@kv pending=1 skip=[attn.1, mlp.1] write=scratch
  %n = grow %t at=%f logits=%q
  %m = measure %q top1
  %stop = compute "m < b" m=%m b=%b
  yield %n until=%stop
}
%l = forward target %c cache=@kv pending=1
"""


def part_facts(folder: Path, method: str) -> ProblemFacts:
    """Facts in which parts of models are known, and how they draft in the ways of a method."""
    facts = example_facts(folder, methods=[method])
    known = {name: AcceptanceProfile.from_hazards([[0.6]], drafter=name) for name in PARTS}
    facts = replace(facts, profiles={**facts.profiles, **known})
    ways = {
        name: AcceptanceProfile.from_hazards([[0.6]], drafter=name)
        for name in later_drafters(facts)
    }
    return replace(facts, profiles={**facts.profiles, **ways})


@pytest.mark.parametrize(
    "method",
    [
        "adaptive_bar",
        "adaptive_length",
        "batch_length",
        "goodput_length",
        "heuristic_length",
        "thompson",
    ],
)
def test_every_rule_ends_drafts_of_every_part(method: str, tmp_path: Path) -> None:
    """A part that is known is measured in the ways of a method, and then offered in them."""
    facts, chain_method = part_facts(tmp_path, method), discover_methods()[method]
    nothing = replace(facts, profiles={})
    assert later_drafters(nothing) == tuple(
        chain_method.drafter(facts, one) for one in chain_method.run_settings(facts)
    )
    (family,) = chain_method.choices(facts)
    assert isinstance(family, Family)
    parts = [one for one in family.settings if one.drafter in PARTS]
    assert {one.drafter for one in parts} == set(PARTS)
    for one in parts:
        rounds, plan = chain_method.drafter(facts, one), chain_method.plan(facts, one)
        assert isinstance(rounds, OwnRounds) and profiling_plan(facts, rounds) == plan
        assert profiling_plan(nothing, rounds) is None  # the part itself is to be measured first
        assert verify_plan(plan) == () == tuple(refusals(plan, CAPABILITIES)), one


def test_a_draft_model_without_blocks_drafts_in_no_way(tmp_path: Path) -> None:
    """Only the target goes without blocks of its own: nothing catches a draft model's cache up."""
    facts = example_facts(tmp_path, methods=["thompson"])
    known = {
        name: AcceptanceProfile.from_hazards([[0.6]], drafter=name)
        for name in (SkipBlocks("draft", Skips.of([1], [1])),)
    }
    facts = replace(facts, profiles={**facts.profiles, **known})
    method = discover_methods()["thompson"]
    assert not [one for one in method.later_settings(facts) if one.drafter in known]


def test_the_bar_ends_drafts_without_blocks_as_published(tmp_path: Path) -> None:
    facts = part_facts(tmp_path, "adaptive_bar")
    method = discover_methods()["adaptive_bar"]
    (plan,) = (
        method.plan(facts, one)
        for one in method.later_settings(facts)
        if one.drafter == PARTS[0] and one.wanted == 0.9
    )
    assert plan.models_run == ("target",)
    assert BY_SKIPPING in dedent(print_plan(plan).split("round decode {\n")[1].rsplit("}", 1)[0])


@pytest.mark.parametrize(
    ("accepted", "drafted", "bar", "rate"),
    [(2, 4, 0.601, 0.7), (4, 4, 0.599, 0.95), (8, 8, 0.6, 0.95), (0, 1, 0.601, 0.45)],
)
def test_the_bar_moves_as_published(
    accepted: int, drafted: int, bar: float, rate: float, tmp_path: Path
) -> None:
    """Draft & Verify (arXiv 2309.08168), released code: step .01, weights .5 and .9, wanted .9."""
    plan = plan_of(tmp_path, "adaptive_bar", "up to 8 by draft, 0.9 of them to be accepted")
    left = after_round(plan, {"bar": 0.6, "rate": 0.9}, accepted, drafted)
    assert left == pytest.approx({"bar": bar, "rate": rate})
    (first,) = (state for state in plan.states if state.name == "bar")
    assert isinstance(first, ValueState) and first.kind.get("init") == 0.6


def test_the_coin_is_the_mean_of_the_posterior(tmp_path: Path) -> None:
    """Beta(1, 1); three of five accepted, the fourth rejected: Beta(4, 2), which goes on at 2/3."""
    plan = plan_of(tmp_path, "thompson", "up to 10 by draft, by chance")
    left = after_round(plan, {"kept": 1.0, "lost": 1.0}, 3, 5)
    assert left == {"kept": 4.0, "lost": 2.0}
    assert after_round(plan, left, 2, 2) == {"kept": 6.0, "lost": 2.0}  # none was rejected
    (loop,) = (op for op in plan.rounds[0].ops if isinstance(op, Repeat))
    (stop,) = (op for op in loop.body.ops if isinstance(op, Compute))
    names = {name: {"m": 0.66, "k": 4.0, "o": 2.0}[name] for name, _ in stop.operands}
    assert evaluate(stop.formula, names) is False
    assert evaluate(stop.formula, names | {"m": 0.67}) is True


@pytest.mark.parametrize(
    "accepted",
    [(5, 7, 9, 3, 10, 12, 0), (0, 1, 0, 0, 0, 0, 1), (5, 7, 9, 11, 13, 15, 16)],
)
def test_the_length_follows_success_as_in_transformers(
    accepted: tuple[int, ...], tmp_path: Path
) -> None:
    """Against `AssistedCandidateGenerator.update_candidate_strategy` itself, while below the most.

    Its length is what the next chain stops at.
    """
    candidates = pytest.importorskip("transformers.generation.candidate_generator")
    torch = pytest.importorskip("torch")
    theirs = candidates.AssistedCandidateGenerator.__new__(candidates.AssistedCandidateGenerator)
    theirs.assistant_generation_config = SimpleNamespace(
        num_assistant_tokens_schedule="heuristic_transient", assistant_confidence_threshold=0.0
    )
    theirs.num_assistant_tokens = 5
    plan = plan_of(tmp_path, "heuristic_length", "5 by draft, then two more or one less, up to 16")
    (loop,) = (op for op in plan.rounds[0].ops if isinstance(op, Repeat))
    (stop,) = (op for op in loop.body.ops if isinstance(op, Compute))
    left = {"length": 5.0}
    for hit in accepted:
        drafted = int(left["length"])
        assert drafted == min(theirs.num_assistant_tokens, 16) <= loop.count
        for count in range(1, loop.count + 1):
            ends = evaluate(stop.formula, {"m": float(count), "k": left["length"]})
            assert ends is (count >= drafted)
        left = after_round(plan, left, min(hit, drafted), drafted)
        theirs.update_candidate_strategy(None, torch.zeros(1, drafted + 1, 2), min(hit, drafted))


def test_the_length_follows_the_best_of_the_batch(tmp_path: Path) -> None:
    """Two more after a whole draft, one less else, from 7 tokens, 1 to 32 (arXiv 2404.15778)."""
    words = "7 by draft, then two more or one less for the batch, up to 32"
    plan, left, lengths = plan_of(tmp_path, "batch_length", words), {"length": 7.0}, [7.0]
    for best in (7, 9, 3, 0, *(32,) * 20):
        left = after_round(plan, left, min(best, int(lengths[-1])), int(lengths[-1]))
        lengths.append(left["length"])
    assert lengths[:5] == [7, 9, 11, 10, 9] and lengths[-1] == 32
    for _ in range(40):
        left = after_round(plan, left, 0, int(left["length"]))
    assert left == {"length": 1.0}


@pytest.mark.parametrize("cost", [0.05, 0.1, 0.2, 0.4])
def test_the_length_has_the_largest_goodput(cost: float, tmp_path: Path) -> None:
    """At every rate: the best of all lengths by the published tokens of a step, over its time."""
    plan = plan_of(
        tmp_path, "goodput_length", f"up to 10 by draft, while one more is worth {cost} of a step"
    )
    (loop,) = (op for op in plan.rounds[0].ops if isinstance(op, Repeat))
    (stop,) = (op for op in loop.body.ops if isinstance(op, Compute))
    for rate in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97):

        def goodput(length: int, rate: float = rate) -> float:
            return sum(rate**place for place in range(length + 1)) / (1 + cost * length)

        ends = (n for n in range(1, 11) if evaluate(stop.formula, {"m": float(n), "r": rate}))
        assert next(ends, 10) == max(range(1, 11), key=goodput)


def test_the_rate_is_that_of_judged_tokens(tmp_path: Path) -> None:
    """Three of five accepted: the fourth was judged, the fifth was not."""
    words = "up to 10 by draft, while one more is worth 0.1 of a step"
    plan = plan_of(tmp_path, "goodput_length", words)
    left = after_round(plan, {"accepted": 7.0, "judged": 10.0}, 3, 5)
    assert left == pytest.approx({"accepted": 9.3, "judged": 13.0})
    assert after_round(plan, left, 2, 2) == pytest.approx({"accepted": 10.37, "judged": 13.7})
