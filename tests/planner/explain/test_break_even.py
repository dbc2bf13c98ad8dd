"""Break-even points of priced plans, and the law that governs them: checked by pricing anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.formulas.formula import load_formulas
from specplan.planner.explain.break_even import break_evens, draft_steps
from specplan.planner.explain.break_even_words import break_even_words
from specplan.planner.explain.data import explain
from specplan.planner.explain.priced_break_even import most_scale, scaled_hazards
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.search import SearchResult, search
from tests.planner.example_facts import example_facts, profiles

LAWS = {
    ("autoregressive", "plain"): "round_time",
    ("draft_model", "chain"): "decoding_speculative_decoding",
    ("draft_model", "tree"): "sequoia",
    ("prompt_lookup", "up to"): "round_time",
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    return search(example_facts(tmp_path_factory.mktemp("facts")))


def candidate(searched: SearchResult, method: str, words: str) -> Candidate:
    return next(
        c
        for c in searched.candidates
        if c.priced and c.method == method and c.words.startswith(words)
    )


def drafting_of(facts: ProblemFacts, chosen: Candidate) -> Drafting:
    assert chosen.plan is not None and chosen.drafter is not None
    read = read_drafting(
        chosen.plan, chosen.plan.rounds[0], facts.profiles[chosen.drafter].evidence
    )
    assert isinstance(read, Drafting)
    return read


def ratio(
    searched: SearchResult,
    chosen: Candidate,
    profile: AcceptanceProfile,
    batch: int,
    prompt_tokens: int = 40,
) -> float:
    """The speedup of one request, priced from nothing."""
    facts, seconds = searched.facts, []
    for plan, acceptance in ((searched.plain.plan, None), (chosen.plan, profile)):
        assert plan is not None
        price = Pricer(
            facts.device, facts.shapes, batch=batch, prompt_tokens=prompt_tokens, output_tokens=32
        ).estimate(plan, acceptance)
        assert isinstance(price, Estimate)
        seconds.append(price.request_seconds.median)
    return seconds[0] / seconds[1]


def entries(searched: SearchResult, chosen: Candidate, unknown: str) -> list[dict[str, Any]]:
    every = break_evens(searched.facts, chosen, searched.plain)
    return [entry for entry in every if entry["unknown"] == unknown]


def test_at_its_break_even_acceptance_a_plan_is_as_fast_as_plain_decoding(
    searched: SearchResult,
) -> None:
    chosen = candidate(searched, "draft_model", "tree of 24")
    drafting = drafting_of(searched.facts, chosen)
    for entry in entries(searched, chosen, "acceptance"):
        ((start, end),) = entry["pays"]
        assert end is None and (start["low"] or 0.0) < start["mean"] < start["high"] < 1.0
        profile = AcceptanceProfile(
            profiles(True)[Model("draft")].key, scaled_hazards(drafting, start["mean"])
        )
        assert ratio(searched, chosen, profile, entry["batch"]) == pytest.approx(1.0, abs=0.01)
        (tokens,) = entry["tokens"]
        value = profile.tokens_per_round(drafting.parents, drafting.ranks).mean
        assert tokens["mean"] == pytest.approx(value, rel=0.01)


def test_the_batch_at_which_a_plan_stops_paying(searched: SearchResult) -> None:
    chosen = candidate(searched, "draft_model", "tree of 24")
    (entry,) = entries(searched, chosen, "batch")
    ((start, end),) = entry["pays"]
    assert start is None and end["mean"] == int(end["mean"])
    profile = searched.facts.profiles[Model("draft")]
    assert ratio(searched, chosen, profile, int(end["mean"] * 0.8)) > 1.0
    assert ratio(searched, chosen, profile, int(end["mean"] * 1.25) + 1) < 1.0


def test_the_prompt_at_which_a_plan_starts_paying(tmp_path: Path) -> None:
    """A batch too large for short prompts: with long ones reading the caches dominates."""
    result = search(
        example_facts(tmp_path, workload={"batch_sizes": [48], "prompt_tokens": 40,
                                          "output_tokens": 32})
    )  # fmt: skip
    chosen = candidate(result, "draft_model", "chain of 3")
    (entry,) = entries(result, chosen, "prompt_tokens")
    profile = result.facts.profiles[Model("draft")]
    for stretch in entry["pays"]:
        for edge in stretch:
            if edge is not None:
                prompt = int(edge["mean"])
                assert ratio(result, chosen, profile, 48, prompt) == pytest.approx(1.0, abs=0.06)
    sampled = np.geomspace(entry["low"], entry["high"], 7).astype(int)
    for prompt in sampled:
        speedup = ratio(result, chosen, profile, 48, int(prompt))
        inside = any(
            (start is None or start["mean"] <= prompt) and (end is None or prompt <= end["mean"])
            for start, end in entry["pays"]
        )
        assert inside == (speedup > 1.0) or abs(speedup - 1.0) < 0.03


def test_the_draft_step_at_which_a_plan_stops_paying(searched: SearchResult) -> None:
    """The edge obeys the law, but for the time of the prompts, which the law leaves out."""
    for method, words in (("draft_model", "chain of 4"), ("draft_model", "tree of 16")):
        chosen = candidate(searched, method, words)
        for entry, estimate in zip(
            entries(searched, chosen, "draft_seconds"), chosen.estimates, strict=True
        ):
            ((start, end),) = entry["pays"]
            steps, seconds = draft_steps(estimate)
            assert start is None and entry["now"]["mean"] == pytest.approx(seconds.median / steps)
            round_seconds = estimate.seconds_per_round.median - seconds.median + steps * end["mean"]
            request = estimate.prefill.median + estimate.rounds.mean * round_seconds
            plain = next(e for e in searched.plain.estimates if e.batch == estimate.batch)
            assert request == pytest.approx(plain.request_seconds.median, rel=0.01)
            assert end["low"] < end["mean"] < end["high"]


def test_plans_without_a_draft_model_have_no_draft_step(searched: SearchResult) -> None:
    lookup = candidate(searched, "prompt_lookup", "up to")
    unknowns = {entry["unknown"] for entry in break_evens(searched.facts, lookup, searched.plain)}
    assert unknowns == {"acceptance", "batch", "prompt_tokens"}


def test_break_even_takes_few_pricings(
    searched: SearchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of loads is priced at once: only acceptance is priced point by point."""
    calls = []
    priced = Pricer.estimate

    def counted(self: Pricer, *arguments: Any) -> Any:
        calls.append(arguments)
        return priced(self, *arguments)

    monkeypatch.setattr(Pricer, "estimate", counted)
    break_evens(searched.facts, candidate(searched, "draft_model", "tree of 24"), searched.plain)
    assert len(calls) <= 40


def test_a_profile_scaled_by_one_is_the_profile(searched: SearchResult) -> None:
    """Traces with runs: hazards that differ by depth, and that rise after a success."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(12):
        good = rng.random(60) < np.repeat(rng.random(6), 10)
        rows.append(tuple(int(rng.integers(0, 3)) if hit else -1 for hit in good))
    chosen = candidate(searched, "draft_model", "tree of 8")
    drafting = drafting_of(searched.facts, chosen)
    own = Drafting(drafting.demands, drafting.parents, drafting.ranks, Ranks(tuple(rows)))
    assert own.evidence is not None
    model, same = own.evidence.model, scaled_hazards(own, 1.0).model
    tree = (own.parents, own.ranks)
    reached = model.accepted_at_least(*tree)
    again = same.accepted_at_least(*tree)
    assert again == pytest.approx(reached[: len(again)]) and not any(reached[len(again) :])
    mine, its = same.tokens_per_round(*tree), model.tokens_per_round(*tree)
    assert mine.mean == pytest.approx(its.mean)
    assert mine.high - mine.low == pytest.approx(its.high - its.low, rel=0.15)
    most = most_scale(own)
    tokens = [
        scaled_hazards(own, scale).model.tokens_per_round(*tree).mean
        for scale in (0.0, 0.5, 1.0, most)
    ]
    assert tokens[0] == 1.0 and tokens == sorted(tokens)
    assert max(scaled_hazards(own, most).model.hazard(d, 0) for d in range(1, 5)) <= 1.0


@pytest.mark.parametrize(("method", "words"), LAWS)
def test_the_governing_formula_has_the_plans_numbers(
    searched: SearchResult, method: str, words: str
) -> None:
    """The law's value at the printed numbers is the printed speedup."""
    chosen = candidate(searched, method, words)
    result = SearchResult(searched.facts, searched.candidates, chosen, searched.plain)
    (entry,) = explain(result)["laws"]
    assert entry["law"] == LAWS[method, words]
    law = load_formulas(entry["law"])
    for cell, estimate in zip(entry["by_cell"], chosen.estimates, strict=True):
        means = {
            name: value["mean"] if isinstance(value, dict) else value
            for name, value in cell["values"].items()
        }
        assert law.value(entry["formula"], **means) == pytest.approx(cell["speedup"]["mean"])
        assert cell["speedup"]["low"] <= cell["speedup"]["mean"] <= cell["speedup"]["high"]
        assert means["tokens"] == estimate.tokens_per_round.mean


def edge(mean: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    return {"mean": mean, "low": low, "high": high}


def test_words_of_break_even_points() -> None:
    base = {"unknown": "batch", "batch": None, "prompt_tokens": 40, "now": None, "low": 1.0,
            "high": 64.0, "extrapolated": False, "always": False, "never": False, "pays": [],
            "surely": [], "perhaps": []}  # fmt: skip
    cases = (
        ({"pays": [[None, edge(12, 9)]]}, "up to 12 (9 to more) requests"),
        ({"pays": [[edge(3, None, 5), None]]}, "from 3 (less to 5) requests"),
        ({"never": True, "perhaps": [[1, 8]]},
         "nowhere from 1 to 64 requests, perhaps from 1 to 8 requests"),
        ({"always": True, "surely": [[1.0, 64.0]]}, "everywhere from 1 to 64 requests"),
        ({"always": True}, "everywhere from 1 to 64 requests, surely nowhere"),
        ({"always": True, "surely": [[2, 9]], "extrapolated": True},
         "everywhere from 1 to 64 requests, surely from 2 to 9 requests (extrapolated)"),
    )  # fmt: skip
    for changes, words in cases:
        lines = list(
            break_even_words(
                {"break_even": [{"method": "a", "words": "b", "points": [base | changes]}]}
            )
        )
        assert lines[1] == f"- by batch size, with prompts of 40 tokens: {words}."


def test_each_round_of_a_schedule_has_its_own(searched: SearchResult) -> None:
    """In the cells in which it runs, and priced anew by itself."""
    parts = (
        candidate(searched, "draft_model", "tree of 16"),
        candidate(searched, "draft_model", "chain"),
    )
    whole, plan = parts[0].estimate, parts[0].plan
    schedule = Candidate("schedule", "by batch", {}, "both", None, plan, whole, by_cell=parts)
    data = explain(SearchResult(searched.facts, searched.candidates, schedule, searched.plain))
    laws = [(entry["law"], [cell["batch"] for cell in entry["by_cell"]]) for entry in data["laws"]]
    assert laws == [("sequoia", [1]), ("decoding_speculative_decoding", [4])]
    assert [entry["words"] for entry in data["acceptance"]] == [part.words for part in parts]
    for part, batch, entry in zip(parts, (1, 4), data["break_even"], strict=True):
        assert entry["words"] == part.words
        fixed = {point["batch"] for point in entry["points"] if point["unknown"] != "batch"}
        assert fixed == {batch}
