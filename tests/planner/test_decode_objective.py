"""The objective tpot and a cached prefix: what decoding gains where prefill would hide it."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.ir.errors import UsageError
from specplan.planner.explain.data import summarise
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.comparing import TIE, score
from specplan.planner.search.search import SearchResult, search
from specplan.planner.search.what_if import what_if
from specplan.problems import check_runs
from tests.planner.example_facts import example_facts, example_problem, workload

LONG = workload(prompt_tokens=3000)


def planned(folder: Path, **changes: Any) -> SearchResult:
    return search(example_facts(folder, methods=["draft_model"], **changes))


def test_tpot_counts_decoding_alone(tmp_path: Path) -> None:
    by_request = planned(tmp_path, workload=LONG)
    result = planned(tmp_path, workload=LONG, objective="tpot")

    def tpots(of: SearchResult) -> list[float]:
        return [one.seconds_per_token.median for one in of.chosen.estimates]

    plain = [one.seconds_per_token.median for one in result.plain.estimates]
    own = tpots(result)
    gain = sqrt(plain[0] * plain[1]) / sqrt(own[0] * own[1])
    assert result.speedup.mean == pytest.approx(gain)
    assert result.speedup.mean > by_request.speedup.mean  # whose quotient has the prefill
    assert tpots(by_request) >= own  # and in which plans tie more often
    singles = [c for c in result.candidates if c.admissible and not c.by_cell]
    assert score(result.chosen, "tpot") <= (1.0 + TIE) * min(score(c, "tpot") for c in singles)
    loads = summarise(result)["loads"]
    assert loads[0]["speedup"]["mean"] == pytest.approx(plain[0] / own[0], rel=0.02)
    assert 0.0 < result.confidence.probability_best <= 1.0
    rows = what_if(result.facts, [Model("draft")], [0.8])
    assert rows[0].gain > what_if(by_request.facts, [Model("draft")], [0.8])[0].gain


def test_a_cached_prefix_shortens_the_first_token_alone(tmp_path: Path) -> None:
    whole = planned(tmp_path, workload=LONG).plain.estimates
    cached = planned(tmp_path, workload=LONG | {"cached_prefix": 2500})
    for before, after in zip(whole, cached.plain.estimates, strict=True):
        device, target = cached.facts.device, cached.facts.target
        prefill = device.forward_seconds(target, before.batch, 500, 2500, logit_rows=1)
        assert after.prefill.median == pytest.approx(prefill.median)
        assert after.ttft.median == pytest.approx(prefill.median + before.seconds_per_round.median)
        assert after.seconds_per_token == before.seconds_per_token
        assert after.memory == before.memory
    assert cached.speedup.mean > planned(tmp_path, workload=LONG).speedup.mean
    assert summarise(cached)["setting"]["cached_prefix"] == 2500


def test_a_cached_prefix_is_checked(tmp_path: Path) -> None:
    facts = example_facts(tmp_path, workload=workload(cached_prefix=39))
    with pytest.raises(UsageError, match="no prefix cache") as refused:
        check_runs(facts.problem)
    assert refused.value.where == "workload.cached_prefix"
    for cached in (40, -1):
        document = example_problem(workload=workload(cached_prefix=cached))
        with pytest.raises(UsageError, match=r"workload\.cached_prefix"):
            problem_from_dict(document, tmp_path)
