"""The explanation: complete as data, readable as words, true in every verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from specplan.cli.screen.picture import picture_lines, tree_lines
from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.forecast import Forecast
from specplan.notebook.tables import result_rows
from specplan.planner.answer.names import advice, plan_name, times
from specplan.planner.answer.not_tried import not_tried_lines
from specplan.planner.explain.data import explain
from specplan.planner.explain.words import explain_words
from specplan.planner.search.comparing import score
from specplan.planner.search.search import SearchResult, search
from specplan.planner.trees.candidates import left_by_trees
from specplan.result import Result
from tests.planner.example_facts import SEVEN_BILLION, example_facts, profiles


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """The search of the example problem."""
    return search(example_facts(tmp_path_factory.mktemp("example")))


def explained(result: SearchResult) -> tuple[dict[str, Any], str]:
    """The explanation of a search, as JSON data and as one text."""
    data = json.loads(json.dumps(explain(result), allow_nan=False))
    return data, "\n".join(explain_words(data))


@pytest.fixture(scope="module")
def explanation(result: SearchResult) -> tuple[dict[str, Any], str]:
    """Of the example problem."""
    return explained(result)


def searched(folder: Path, **changes: Any) -> SearchResult:
    """The search of the example problem with changes."""
    return search(example_facts(folder, **changes))


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """Hardly a draft token is accepted."""
    given = rates([0.001], trials=100000)
    return searched(tmp_path_factory.mktemp("losing"), given=given)


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """No acceptance is known."""
    return searched(tmp_path_factory.mktemp("unknown"), given={})


def rates(*rows: Sequence[float], trials: float = 1000) -> dict[Drafter, AcceptanceProfile]:
    return {Model("draft"): AcceptanceProfile.from_hazards(rows, trials=trials)}


def test_speculation_that_wins(explanation: tuple[dict[str, Any], str]) -> None:
    data, text = explanation
    assert data["verdict"] == "speculate"
    gain = data["speedup"]
    assert 1.0 < gain["low"] <= gain["mean"] <= gain["high"]
    faster = f"{times(gain['mean'])} faster than without speculation ("
    assert text.startswith(f"{advice(data)}\n{faster}")
    assert [figures["batch"] for figures in data["chosen"]["by_batch"]] == [1, 4]
    assert "Batch 4: " in text and "tokens per round" in text


def test_one_name_is_one_speed(result: SearchResult) -> None:
    """Of all requests and with prompts everywhere, while decoding or of one where the name says."""
    answer = Result(result)
    data, report = answer.explanation(), result.as_dict()
    stored = report["candidates"][report["chosen"]]["estimates"]
    rows = zip(
        answer.estimates, data["chosen"]["by_batch"], stored, result_rows(answer), strict=True
    )
    for estimate, figures, entry, row in rows:
        whole = estimate.batch * estimate.output_tokens / estimate.request_seconds.median
        decoding = estimate.batch / estimate.seconds_per_token.median
        assert whole < decoding
        forecast = Forecast.from_dict(asdict(estimate))
        for speed in (
            estimate.tokens_per_second.mean,
            figures["tokens_per_second"]["mean"],
            entry["tokens_per_second"]["mean"],
            forecast.tokens_per_second().mean,
        ):
            assert speed == pytest.approx(whole)
        assert estimate.decode_tokens_per_second.mean == pytest.approx(decoding)
        assert entry["decode_tokens_per_second"]["mean"] == pytest.approx(decoding)
        assert row["decode_tokens_per_s_total"] == pytest.approx(decoding)
        assert row["decode_tokens_per_s_user"] == pytest.approx(decoding / estimate.batch)


def test_where_runs_would_tell_they_are_recommended(tmp_path: Path) -> None:
    facts = example_facts(tmp_path, given=rates([0.6, 0.15, 0.05], trials=25))
    workload = facts.problem.workload.model_copy(update={"prompts": tmp_path / "prompts.jsonl"})
    for here in (True, False):
        device = "measured" if here else facts.problem.device
        changed = facts.problem.model_copy(update={"device": device, "workload": workload})
        data = explain(search(replace(facts, problem=changed)))
        assert data["confidence"]["expected_regret"] > 0.005
        assert ("specplan tune" in "\n".join(explain_words(data))) == here


def test_a_dtype_that_no_config_states_is_an_assumption(result: SearchResult) -> None:
    facts = result.facts
    stated = explain(result)["assumptions"]
    assert not any("states no dtype" in words for words in stated)
    guessed = replace(facts, target=replace(facts.target, states_dtype=False))
    assumed = explain(search(guessed))["assumptions"]
    dtype = facts.target.dtype
    assert f'"target" is {dtype}: its config.json states no dtype' in assumed


def test_runners_up_are_the_best_of_every_family(explanation: tuple[dict[str, Any], str]) -> None:
    data, text = explanation
    families = [(entry["method"], entry["family"]) for entry in data["runners_up"]]
    assert len(set(families)) == len(families)
    assert {method for method, _ in families} == {
        "autoregressive", "draft_model", "dynamic_tree", "early_exit", "layer_skip",
        "lookup_by_match", "lookup_or_draft", "prompt_lookup", "staged",
    }  # fmt: skip
    gains = [entry["speedup"]["mean"] for entry in data["runners_up"]]
    assert gains == sorted(gains, reverse=True)
    (line,) = [line for line in text.split("\n") if line.startswith("Instead, over ")]
    rest = [one for one in data["runners_up"] if one["method"] != "autoregressive"]
    assert all(f"{plan_name(one)} " in line or one["refusal"] for one in rest)


def test_the_runner_up_the_best_single_round_and_untried_trees_are_reported(tmp_path: Path) -> None:
    result = search(example_facts(tmp_path, methods=["draft_model"]))
    chosen, data = result.chosen, explain(result)
    assert chosen.by_cell, "a schedule"
    others = [c for c in result.candidates if c.admissible and c is not chosen]
    second = min(others, key=lambda c: score(c, "latency"))
    single = min((c for c in others if not c.by_cell), key=lambda c: score(c, "latency"))
    for other, key in ((second, "runner_up"), (single, "best_single")):
        reported, gain = data[key], data[key]["gain"]
        assert (reported["method"], reported["words"]) == (other.method, other.words)
        ratio = score(other, "latency") / score(chosen, "latency")
        assert gain["mean"] == pytest.approx(ratio) and gain["low"] < ratio < gain["high"]
        assert reported["simpler"] == (chosen.simplicity < other.simplicity)
    text = "\n".join(explain_words(data))
    (line,) = [line for line in text.split("\n") if line.startswith("K by batch size gains ")]
    assert f"{100 * (data['best_single']['gain']['mean'] - 1.0):.1f}" in line
    assert line.endswith(f"over {plan_name(data['best_single'])} at every batch size.")
    left = left_by_trees(result.facts, Model("draft"), [0, 1])
    assert 5e-5 < left < 1e-3
    (reported,) = [
        words for words in data["assumptions"] if words.startswith("of the static trees")
    ]
    assert reported.endswith(f"might save at most {left:.2%} of the time")


def test_what_has_no_rival_is_reported_without_one(tmp_path: Path) -> None:
    data = explain(search(example_facts(tmp_path, methods=["autoregressive"])))
    assert data["runner_up"] is None and data["best_single"] is None
    assert "Instead" not in "\n".join(explain_words(data))


def test_time_adds_up(explanation: tuple[dict[str, Any], str]) -> None:
    data, text = explanation
    for entry, figures in zip(data["time"]["chosen"], data["chosen"]["by_batch"], strict=True):
        seconds = [part["seconds"]["mean"] for part in entry["parts"]]
        assert sum(seconds) == pytest.approx(figures["seconds_per_round"]["mean"])
        assert seconds == sorted(seconds, reverse=True)
    assert "Time of a round at batch 1: forward target" in text


def test_acceptance_is_reported_by_depth(tmp_path: Path) -> None:
    data, text = explained(searched(tmp_path, given=rates([0.7])))
    acceptance = data["acceptance"][0]
    assert "chain" in acceptance["words"] and "static trees" not in text.split("\n")[-1]
    shares = [entry["accepted_at_least"]["mean"] for entry in acceptance["by_depth"]]
    assert shares == pytest.approx([0.7**depth for depth in range(1, len(shares) + 1)])
    first = acceptance["by_depth"][0]
    assert first["first_choice"]["mean"] == pytest.approx(0.7) and first["trials"] == 1000
    assert first["first_choice"]["low"] < 0.7 < first["first_choice"]["high"]
    assert "share of the rounds: 1 in 70% (68% to 72%), 2 in 49% (46% to 52%)" in text


def test_a_tree_is_drawn_with_a_line_per_leaf() -> None:
    assert tree_lines([-1, -1, 0, 0, 1, 2, -1]) == [
        "root +- 0 +- 0 --- 0",
        "     |    `- 1",
        "     |- 1 --- 0",
        "     `- 2",
    ]
    assert tree_lines([-1, 0, 1]) == ["root --- 0 --- 0 --- 0"]


def test_what_the_chosen_plan_drafts_is_drawn(tmp_path: Path) -> None:
    data, _ = explained(searched(tmp_path, given=rates([0.7])))
    parents = data["acceptance"][0]["parents"]
    title, *drawn = picture_lines(data)
    assert title.startswith(f'Drafted by "draft" ({data["chosen"]["words"]})')
    assert drawn == [f"  {line}" for line in tree_lines(parents)]
    data["acceptance"][0]["may_end"] = True
    assert next(picture_lines(data)).endswith(", at most; numbers are ranks:")
    data["acceptance"][0]["parents"] = None
    (only,) = picture_lines(data)
    assert "depends on the text" in only
    assert list(picture_lines(data | {"verdict": "plain_faster"})) == []


def test_plain_decoding_that_is_faster(tmp_path: Path) -> None:
    given = rates([0.001], trials=100000)
    data, text = explained(searched(tmp_path, given=given, draft=SEVEN_BILLION))
    assert data["verdict"] == "plain_faster"
    assert data["chosen"]["method"] == "autoregressive"
    assert 'The best with speculation, draft model "draft" K=1, is estimated at' in text
    assert data["best_drafting"]["speedup"]["high"] < 1.0


def test_plain_decoding_within_the_error(tmp_path: Path) -> None:
    data, text = explained(searched(tmp_path, given=rates([0.06], trials=20)))
    assert data["verdict"] == "plain_within_error"
    gain = data["best_drafting"]["speedup"]
    assert gain["low"] < 1.0 < gain["high"]
    assert "x), within the error." in text


def test_nothing_but_plain_decoding(tmp_path: Path) -> None:
    alone = {"target": {"path": "target"}}
    data, text = explained(searched(tmp_path, given={}, models=alone))
    assert data["verdict"] == "plain_only" and data["best_drafting"] is None
    assert data["acceptance"] == []
    assert "No plan with speculation could be compared with it." in text


def test_no_decision_without_any_acceptance(unknown: SearchResult) -> None:
    data, text = explained(unknown)
    assert data["verdict"] == "undecided" and data["best_drafting"] is None
    assert text.startswith("No decision: no acceptance is known for draft")
    assert "Chosen" not in text and "acceptance: {draft: 0.75}" in text
    refused = [entry for entry in data["refused"] if "workload.prompts" in entry["reason"]]
    methods = {entry["method"] for entry in refused}
    assert methods == {
        "draft_model", "dynamic_tree", "early_exit", "lookup_by_match", "lookup_or_draft",
        "prompt_lookup", "staged",
    }  # fmt: skip
    assert len({entry["reason"] for entry in refused}) == 5 + 3


def test_drafting_refused_by_a_limit(tmp_path: Path) -> None:
    plain = search(example_facts(tmp_path, methods=["autoregressive"])).plain
    limit = plain.estimates[-1].memory.total + 1e6
    changes = {"methods": ["draft_model"], "limits": {"memory": limit}}
    data, text = explained(searched(tmp_path, **changes))
    assert data["verdict"] == "plain_only"
    assert "Every plan with speculation misses a limit: limits.memory: memory needed is" in text
    chains = next(e for e in data["refused"] if e["family"] == "chain by draft")
    entry = f"draft_model, chain by draft, {chains['settings']} settings: {chains['reason']}"
    assert entry in text


def test_plain_decoding_refused_by_a_limit(tmp_path: Path, result: SearchResult) -> None:
    tpot = 0.8 * max(e.seconds_per_token.median for e in result.plain.estimates)
    data, text = explained(searched(tmp_path, limits={"tpot": tpot}))
    assert data["verdict"] == "plain_refused"
    assert "Without speculation a limit is missed: limits.tpot: time per token is" in text


def test_assumptions_are_stated(explanation: tuple[dict[str, Any], str]) -> None:
    data, text = explanation
    assert "time on h200 is computed from data-sheet figures" in data["assumptions"]
    assert 'the acceptance of "draft" is a given table of rates' in data["assumptions"]
    assert text.split("\n")[-1].startswith("Assumptions: ")


def test_a_measured_profile_is_reported_with_its_positions(tmp_path: Path) -> None:
    key = profiles(True)[Model("draft")].key
    traces = tuple(tuple((0, 0, 1, -1)[(i + j) % 4] for i in range(40)) for j in range(6))
    given = {Model("draft"): AcceptanceProfile(key, Ranks(traces))}
    data, _ = explained(searched(tmp_path, given=given))
    sentence = 'the acceptance of "draft" was measured at 240 positions of 6 prompts'
    assert sentence in data["assumptions"]


def test_words_are_one_line_each_and_hold_no_raw_floats(
    tmp_path: Path, result: SearchResult
) -> None:
    alone = {"given": {}, "models": {"target": {"path": "target"}}}
    changed = (alone, {"temperature": 0.8}, {"device": "cpu-generic"})
    for one in (result, *(searched(tmp_path, **changes) for changes in changed)):
        data, text = explained(one)
        lines = [line for line in text.split("\n") if line not in set(not_tried_lines(data))]
        assert all(line.endswith(".") for line in lines), lines
        assert "e-0" not in text and "None" not in text


def floats_without_interval(value: Any, path: str = "") -> list[str]:
    """Paths of all numbers that are no whole counts and stand outside of an interval."""
    if isinstance(value, dict):
        if {"mean", "low", "high"} <= set(value):
            return []
        items = [(f"{path}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{path}[]", item) for item in value]
    else:
        return [path] if isinstance(value, float) else []
    return [bare for name, item in items for bare in floats_without_interval(item, name)]


def test_every_estimate_has_its_interval(
    result: SearchResult, losing: SearchResult, unknown: SearchResult
) -> None:
    """As data: what else is a float is the evidence's own count, or the range of a search.

    Probabilities and regrets of the choice say what the intervals leave open.
    """
    known = {
        ".confidence.probability_best", ".confidence.expected_regret",
        ".confidence.rivals[].probability", ".confidence.measurements[].regret_saved",
        ".acceptance[].by_depth[].trials", ".break_even[].points[].low",
        ".break_even[].points[].high", ".break_even[].points[].surely[][]",
        ".break_even[].points[].perhaps[][]",
        ".break_even[].points[].curve[].tokens",  # looked at, as the range is
        ".what_if[].acceptance", ".what_if[].pays_from", ".setting.temperature",
        ".what_if[].gain",  # beside its gain_interval
    }  # fmt: skip
    for one in (result, losing, unknown):
        data, text = explained(one)
        assert set(floats_without_interval(data)) <= known
        marked = re.sub(r"\([^()]* to [^()]*\)", "#", text)
        bare = [
            line
            for line in marked.split("\n")
            if re.search(r"[0-9] (s|ms|us|ns|TB|GB|MB|kB|tokens/s)\b(?! #)", line)
            and "where from" not in line
        ]
        assert bare == []


def test_the_report_holds_every_estimate_with_its_interval(result: SearchResult) -> None:
    report = json.loads(json.dumps(result.as_dict()))
    for candidate in report["candidates"]:
        for estimate in candidate["estimates"]:
            for field in ("memory_bytes", "tokens_per_round", "tokens_per_second", "rounds"):
                assert estimate[field]["low"] <= estimate[field]["mean"] <= estimate[field]["high"]
            for part in estimate["breakdown"]:
                assert part["seconds"]["low"] <= part["seconds"]["mean"] <= part["seconds"]["high"]


def test_formula_and_break_even_are_printed(
    explanation: tuple[dict[str, Any], str], losing: SearchResult, unknown: SearchResult
) -> None:
    data, text = explanation
    assert {point["unknown"] for part in data["break_even"] for point in part["points"]} == {
        "acceptance", "draft_seconds", "batch", "prompt_tokens",
    }  # fmt: skip
    assert "Formula sequoia (" in text and "E*t_t/(d*t_d + t_v)" in text
    assert "- by acceptance, at batch 1 with prompts of 40 tokens: from 0." in text
    data, text = explained(losing)
    assert [entry["law"] for entry in data["laws"]] == ["round_time"]
    assert 'Where draft model "draft" K=1 is faster than no speculation' in text
    data, text = explained(unknown)
    assert data["break_even"] == [] and "is faster than no speculation" not in text


def test_a_drafter_behind_a_lookup_is_named_with_it() -> None:
    words = "copies of up to 12, without a match chain of 4 by eagle"
    options = {"draft": "eagle", "copied": 12, "length": 4}
    candidate = {"method": "lookup_or_draft", "words": words, "options": options, "head": "eagle"}
    size = "copies of up to 12, without a match K=4"
    name = plan_name(candidate)
    assert name.startswith("prompt lookup or EAGLE") and name.endswith(f'head "eagle" {size}')
    explanation = {"chosen": candidate, "rules": [], "points": [{"draft_tokens": 12}]}
    sentence = advice(explanation)
    assert sentence.startswith("Use prompt lookup or the EAGLE") and sentence.endswith(f": {size}.")
