"""What was measured sets prices right: of the plans that ran, and of those like them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.devices.measured.compiled import compiled_by
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun, Passes
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance
from specplan.ir.errors import UsageError
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.plans import MeasuredPlan, MeasuredPlans, plan_key
from specplan.planner.measured.store import known_plans, plans_path
from specplan.planner.measured.tuned import tuned
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.open_settings import OpenSettings
from specplan.planner.search.search import SearchResult, search
from tests.planner.example_facts import example_facts

OUTPUT = 32


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ProblemFacts:
    """Loads of one and of four requests, prompts of 40 tokens, outputs of 32."""
    return example_facts(tmp_path_factory.mktemp("problem"))


@pytest.fixture(scope="module")
def before(facts: ProblemFacts) -> SearchResult:
    return search(facts)


def measured(
    candidate: Candidate, cell: int, factor: float, tokens: float = 1.0, **more: object
) -> MeasuredPlan:
    """As priced, times `factor`, with `tokens` times the tokens of a round."""
    assert candidate.plan is not None
    estimate = candidate.estimates[cell]
    given = {
        "plan": plan_key(candidate.plan),
        "method": candidate.method,
        "family": candidate.family,
        "words": candidate.words,
        "point": {},
        "batch": estimate.batch,
        "prompt_tokens": estimate.prompt_tokens,
        "seconds_per_token": factor * estimate.request_seconds.median / OUTPUT,
        "error": 0.02,
        "shared": 0.05,
        "tokens_per_round": tokens * estimate.tokens_per_round.mean,
        "turns": 5,
    }
    return MeasuredPlan(**(given | more))  # type: ignore[arg-type]


def again(facts: ProblemFacts, *plans: MeasuredPlan) -> SearchResult:
    return search(replace(facts, measured=MeasuredPlans(plans)))


def same(result: SearchResult, candidate: Candidate) -> Candidate:
    return next(c for c in result.candidates if c.plan == candidate.plan and not c.by_cell)


def single(result: SearchResult, family: str) -> list[Candidate]:
    return [c for c in result.candidates if c.priced and c.family == family]


def test_plans_that_another_version_compiled_are_others(
    facts: ProblemFacts, before: SearchResult, tmp_path: Path
) -> None:
    here = Provenance("x", "eager", 2, "2026-11-27", 1e12, {"torch": "2.11"})
    problem = facts.problem.model_copy(update={"profiles": tmp_path})
    plans = MeasuredPlans((measured(single(before, "chain from the text")[0], 0, 1.5),))

    def by(version: str) -> ProblemFacts:
        run = CompiledRun(
            "p", "", 1, 8, version, 1.0, 1.0, (Passes("m", "f", 1, 1, 1.0),), 1.0, 0.0, 0.0
        )
        table = MeasuredTable("here", here, compiled={"onnxruntime": (run,)})
        device = compiled_by(MeasuredDevice(table), "onnxruntime")
        return replace(facts, problem=problem, device=device)

    plans.save(plans_path(by("1.23"), here.compiled_by("onnxruntime", "1.23")))
    assert known_plans(by("1.23")).plans == plans.plans
    assert not known_plans(by("1.24")).plans and not known_plans(by("")).plans


def test_a_measured_plan_has_the_measured_price(facts: ProblemFacts, before: SearchResult) -> None:
    one = single(before, "chain from the text")[3]
    after = again(facts, measured(one, 1, 1.25, 0.8))
    old, new = one.estimates[1], same(after, one).estimates[1]
    assert new.measured and not same(after, one).estimates[0].measured
    assert new.request_seconds.median == pytest.approx(1.25 * old.request_seconds.median)
    assert new.tokens_per_round.mean == pytest.approx(0.8 * old.tokens_per_round.mean)
    per_token = new.seconds_per_round.median / new.tokens_per_round.mean
    assert per_token == pytest.approx(new.seconds_per_token.median)
    assert new.seconds_per_token.median == pytest.approx(1.25 * old.seconds_per_token.median)
    parts = new.prefill.median + new.seconds_per_round.median * new.rounds.mean
    assert parts == pytest.approx(new.request_seconds.median)
    ops = sum(op.seconds.median for op in new.breakdown)
    assert ops == pytest.approx(new.seconds_per_round.median)
    half = 1.0 + np.sqrt(0.02**2 + 0.05**2 + facts.device.shared_error**2)
    assert new.request_seconds.high == pytest.approx(half * new.request_seconds.median)
    assert new.request_seconds.low == pytest.approx(new.request_seconds.median / half)
    assert new.own_error == pytest.approx(0.02)
    speed = OUTPUT * new.batch / new.request_seconds.median
    assert new.tokens_per_second.mean == pytest.approx(speed)


def test_plans_like_a_measured_one_share_its_factor(
    facts: ProblemFacts, before: SearchResult
) -> None:
    lookups, chains = single(before, "chain from the text"), single(before, "chain by draft")
    plans = [measured(lookups[0], 0, 1.2), measured(lookups[1], 0, 1.2**2, 1.1), *()]
    plans.append(measured(before.plain, 0, 1.0))
    after = again(facts, *plans)

    def factor(one: Candidate, cell: int) -> float:
        new = same(after, one).estimates[cell].request_seconds
        old = one.estimates[cell].request_seconds
        assert new.high / new.median == pytest.approx(old.high / old.median) or cell == 0
        return new.median / old.median

    assert factor(lookups[5], 0) == pytest.approx(1.2**1.5), "the mean of its like"
    assert factor(lookups[5], 1) == pytest.approx(1.2**1.5), "at other loads too"
    assert factor(chains[3], 0) == pytest.approx(1.2), "none of its like ran: the mean of all"
    assert factor(before.plain, 0) == pytest.approx(1.0)
    tokens = same(after, lookups[5]).estimates[0].tokens_per_round.mean
    assert tokens == pytest.approx(1.1**0.5 * lookups[5].estimates[0].tokens_per_round.mean)
    unchanged = same(after, chains[3]).estimates[0].tokens_per_round
    assert unchanged.mean == pytest.approx(chains[3].estimates[0].tokens_per_round.mean)


def test_a_slow_plan_is_not_chosen_again(facts: ProblemFacts, before: SearchResult) -> None:
    parts = [part for part, _ in before.chosen.parts]
    others = [c for c in single(before, parts[0].family) if c.plan != parts[0].plan]
    plans = [measured(c, cell, 1.0) for c in others for cell in (0, 1)]
    plans += [measured(parts[0], cell, 3.0) for cell in (0, 1)]
    after = again(facts, *plans)
    assert all(part.plan != parts[0].plan for part, _ in after.chosen.parts)


def test_settings_that_only_tuning_tried_are_candidates(
    facts: ProblemFacts, before: SearchResult
) -> None:
    offered = OpenSettings.of(before)
    family = "dynamic tree by draft"
    point = {"beam": 2, "depth": 6, "nodes": 17}
    new = offered.at("dynamic_tree", family, point)
    assert new is not None and offered.point(new) == point
    assert all(c.plan != new.plan for c in before.candidates)
    after = again(facts, measured(new, 0, 0.9, point=point))
    assert same(after, new).estimates[0].measured
    assert offered.at("dynamic_tree", family, point | {"nodes": 1000}) is None
    assert offered.at("dynamic_tree", family, point | {"beam": 3}) is None


def test_proposals_are_new_and_the_same_for_a_seed(before: SearchResult) -> None:
    offered = OpenSettings.of(before)
    for method, family in offered.families:
        known = [(offered.point(c), c.estimates[0].request_seconds.median)
                 for c in single(before, family)]  # fmt: skip

        def score(candidate: Candidate) -> float:
            return candidate.estimates[0].request_seconds.median

        asked = [
            offered.propose(method, family, known, score, asks=12, seed=seed) for seed in (1, 1, 2)
        ]
        words = [[candidate.words for candidate in proposals] for proposals in asked]
        assert words[0] == words[1]
        assert words[0] and len(set(words[0])) == len(words[0])
        tried = [point for point, _ in known]
        assert all(offered.point(candidate) not in tried for candidate in asked[0])
        values = [score(candidate) for candidate in asked[0]]
        assert values == sorted(values)


def test_different_loads_get_a_schedule_of_plans_that_ran(
    facts: ProblemFacts, before: SearchResult
) -> None:
    lookup, chain = single(before, "chain from the text")[2], single(before, "chain by draft")[2]
    plain = before.plain.estimates

    def as_plain(one: Candidate, cell: int, factor: float) -> MeasuredPlan:
        seconds = factor * plain[cell].request_seconds.median / OUTPUT
        return measured(one, cell, 1.0, seconds_per_token=seconds)

    plans = [measured(before.plain, cell, 1.0) for cell in (0, 1)]
    plans += [as_plain(lookup, 0, 0.5), as_plain(lookup, 1, 0.9)]
    plans += [as_plain(chain, 0, 0.7), as_plain(chain, 1, 0.6)]
    answer = tuned(before, MeasuredPlans(tuple(plans)))
    assert [part.words for part in answer.chosen.by_cell] == [lookup.words, chain.words]
    close = [*plans[:-1], as_plain(chain, 1, 0.897)]
    answer = tuned(before, MeasuredPlans(tuple(close)))
    assert answer.chosen.words == lookup.words, "a schedule must gain more than a tie"
    assert answer.speedup.mean == pytest.approx((0.5 * 0.9) ** -0.5)


def test_files(facts: ProblemFacts, before: SearchResult, tmp_path: Path) -> None:
    plans = MeasuredPlans((measured(before.plain, 0, 1.0),), {"study": "s"})
    path = tmp_path / "plans.json"
    plans.save(path)
    assert MeasuredPlans.load(path) == plans
    assert known_plans(facts) == MeasuredPlans(), "none were stored for this device"
    document = json.loads(path.read_text())
    for broken in (
        {"kind": "other"},
        {"schema_version": 9},
        {"plans": [{"plan": "x"}]},
        {"plans": [document["plans"][0] | {"seconds_per_token": 0.0}]},
    ):
        path.write_text(json.dumps(document | broken))
        with pytest.raises(UsageError, match="measured plans") as raised:
            MeasuredPlans.load(path)
        assert str(path) in str(raised.value) and "Remove the file" in str(raised.value)
