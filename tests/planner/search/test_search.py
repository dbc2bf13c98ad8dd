"""The search: what it considers, what it takes, what limits refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest

from specplan.api import optimize
from specplan.backends.engines.registry import open_table
from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import Device, UnpricedError
from specplan.cost_models.formulas.closed_forms import expected_tokens
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import InfeasibleError, UsageError
from specplan.ir.schedule import select_round
from specplan.ir.text.parser import parse_plan
from specplan.planner.explain.choice import memory_words
from specplan.planner.explain.data import summarise
from specplan.planner.explain.numbers import bytes_words, seconds_words
from specplan.planner.explain.operating_points import unfit_data
from specplan.planner.method import Family, Refusal, discover_methods
from specplan.planner.problem.schema import Problem
from specplan.planner.reasons import Cause
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import choose, pays, score, speedup
from specplan.planner.search.limits import unfit
from specplan.planner.search.search import SearchResult, search
from tests.cli.test_screen import problem as recorded
from tests.planner.example_facts import example_facts, profiles, workload


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    return search(example_facts(tmp_path_factory.mktemp("problem")))


def rates(*rows: Sequence[float], lookup: float = 0.0) -> dict[Drafter, AcceptanceProfile]:
    return profiles(True, rows, ((lookup,),))


def by_words(result: SearchResult, words: str) -> Candidate:
    return next(candidate for candidate in result.candidates if candidate.words == words)


def planned(result: SearchResult) -> list[Candidate]:
    """The candidates that are no refused families."""
    return [candidate for candidate in result.candidates if candidate.plan is not None]


def test_every_setting_of_every_method_is_there(result: SearchResult) -> None:
    settings = [
        (name, family.name, options.words)
        for name, method in discover_methods().items()
        for family in method.choices(result.facts)
        if isinstance(family, Family)
        for options in family.settings
    ]
    candidates = [(c.method, c.family, c.words) for c in planned(result) if not c.by_cell]
    assert sorted(candidates) == sorted(settings)
    refused = {(c.method, c.family) for c in result.candidates if c.plan is None}
    assert refused == {
        (name, family.name)
        for name, method in discover_methods().items()
        for family in method.choices(result.facts)
        if isinstance(family, Refusal)
    }
    assert result.candidates[0] is result.plain and result.plain.method == "autoregressive"
    assert all(c.priced and len(c.estimates) == 2 for c in planned(result))


def test_the_chosen_plan_is_the_best_or_ties_with_it(result: SearchResult) -> None:
    best = min(score(candidate, "latency") for candidate in planned(result))
    assert best <= score(result.chosen, "latency") <= 1.01 * best
    assert result.speedup.low > 1.0
    assert result.speedup.low <= result.speedup.mean <= result.speedup.high


def test_the_score_is_the_mean_time_per_token(result: SearchResult) -> None:
    requests = [estimate.request_seconds.median for estimate in result.chosen.estimates]
    mean = (requests[0] * requests[1]) ** 0.5
    assert score(result.chosen, "latency") == pytest.approx(mean / 32)
    rate = sum(n * 32 / seconds for n, seconds in zip((1, 4), requests, strict=True)) / 2
    assert score(result.chosen, "throughput") == pytest.approx(1 / rate)
    plain = speedup(result.plain, result.plain, "latency")
    assert (plain.mean, plain.low, plain.high) == pytest.approx((1, 1, 1))


def test_tokens_per_round_of_a_chain_follow_the_closed_form(tmp_path: Path) -> None:
    given = {Model("draft"): AcceptanceProfile.from_hazards([[0.7]])}
    searched = search(example_facts(tmp_path, given=given))
    chains = [c for c in planned(searched) if c.family == "chain by draft"]
    assert len(chains) > 5
    for candidate in chains:
        length, estimate = len(candidate.options["parents"]), candidate.estimates[0]
        assert estimate.tokens_per_round.mean == pytest.approx(expected_tokens(0.7, length))


def test_plain_decoding_wins_when_little_is_accepted(tmp_path: Path) -> None:
    searched = search(example_facts(tmp_path, given=rates([0.02, 0.01])))
    assert searched.chosen is searched.plain
    assert all(c.admissible for c in planned(searched))


def test_a_gain_within_the_error_is_no_gain(tmp_path: Path) -> None:
    few = AcceptanceProfile.from_hazards([[0.18]], trials=5)
    many = AcceptanceProfile.from_hazards([[0.18]], trials=20000)
    unsure = search(example_facts(tmp_path, given={Model("draft"): few}))
    sure = search(example_facts(tmp_path, given={Model("draft"): many}))
    one = "chain of 1 by draft"
    assert score(by_words(unsure, one), "latency") == score(by_words(sure, one), "latency")
    for searched, chosen in ((unsure, unsure.plain), (sure, by_words(sure, one))):
        gain = speedup(by_words(searched, one), searched.plain, "latency")
        errors = log(gain.mean) / (log(gain.mean / gain.low) / 1.645)  # 90 % intervals
        assert errors > 0.0 and (errors > 1.0) == (chosen is not searched.plain)
        assert searched.chosen is chosen


def test_ties_go_to_the_simpler_plan(result: SearchResult) -> None:
    same = result.chosen.estimate
    copied = by_words(result, "up to 8 tokens after a match of 1 to 8")
    chain = by_words(result, "chain of 4 by draft")
    twins = [replace(chain, estimate=same), replace(copied, estimate=same)]
    for order in (twins, twins[::-1]):
        best = choose([result.plain, *order], result.plain, "latency")
        assert best is not None and best.method == "prompt_lookup"


def test_every_refusal_knows_its_cause(tmp_path: Path, result: SearchResult) -> None:
    assert all((c.cause is None) == c.admissible for c in result.candidates)
    methods, sources = discover_methods(), result.facts.problem.sources
    for candidate in result.candidates:
        method = methods.get(candidate.method)
        if method is None or candidate.plan is not None:
            continue
        if not set(method.sources) <= set(sources):
            assert candidate.cause is Cause.SOURCE, candidate.refusal
        elif method.by_name:
            assert candidate.cause is Cause.OPT_IN, candidate.refusal
    only = search(example_facts(tmp_path, methods=["draft_model"], given={}))
    causes = {c.method: c.cause for c in only.candidates}
    assert causes["draft_model"] is Cause.ACCEPTANCE and causes["eagle3"] is Cause.EXCLUDED
    chains = {Model("draft"): AcceptanceProfile.from_hazards([[0.6]], trials=100)}
    known = search(example_facts(tmp_path, methods=["draft_model"], given=chains))
    assert Cause.FIRST_CHOICES in {c.cause for c in known.candidates}
    needed = only.plain.estimates[0].memory.total
    small = search(
        example_facts(
            tmp_path,
            given=chains,
            limits={"memory": 1.0001 * needed},
            methods=["draft_model"],
            workload=workload(batch_sizes=[1]),
        )
    )
    assert {c.cause for c in small.candidates if c.drafter is not None} == {Cause.LIMIT}
    served = replace(result.facts, capabilities=open_table("vllm"))
    causes = {c.method: c.cause for c in search(served).candidates}
    assert causes["dynamic_tree"] is Cause.BACKEND and causes["prompt_lookup"] is None
    data = summarise(known)
    entry = next(one for one in data["refused"] if one["cause"] == "first choices")
    assert entry["cause"] == "first choices" and entry["method"] == "draft_model"


def test_methods_may_be_left_out_but_not_plain_decoding(tmp_path: Path) -> None:
    searched = search(example_facts(tmp_path, methods=["prompt_lookup"]))
    assert {c.method for c in searched.candidates if c.priced} == {
        "autoregressive",
        "prompt_lookup",
    }
    (left_out,) = [c for c in searched.candidates if c.method == "draft_model"]
    assert left_out.refusal == "the problem's methods leave it out"


def test_large_batches_draft_less(tmp_path: Path, result: SearchResult) -> None:
    crowded = search(
        example_facts(tmp_path, objective="throughput", workload=workload(batch_sizes=[64]))
    )
    few = crowded.chosen.estimates[0].breakdown
    many = result.chosen.estimates[0].breakdown
    judged = [max(p.width for p in parts if p.model == "target") for parts in (few, many)]
    assert judged[0] < judged[1]


def test_memory_that_holds_the_target_alone_refuses_draft_models(tmp_path: Path) -> None:
    plain = example_facts(tmp_path)
    without = search(plain).plain.estimates[-1].memory.total
    limit = without + plain.drafts["draft"].weight_bytes / 2
    searched = search(example_facts(tmp_path, limits={"memory": limit}))
    refused = [c for c in searched.candidates if c.method == "draft_model"]
    assert refused and all("limits.memory: memory needed" in str(c.refusal) for c in refused)
    assert all(f"the limit is {bytes_words(limit)}" in str(c.refusal) for c in refused)
    assert all(c.priced and not c.admissible for c in refused)
    drafts, rest = searched.chosen.by_cell
    assert drafts.plan is not None and "draft" in drafts.plan.models_run
    assert rest.method == "prompt_lookup"
    assert searched.chosen.alone == (1,)
    assert all(one.memory.total <= limit for one in searched.chosen.estimates)


def test_a_limit_may_refuse_plain_decoding(tmp_path: Path, result: SearchResult) -> None:
    slow = max(e.seconds_per_token.median for e in result.plain.estimates)
    searched = search(example_facts(tmp_path, limits={"tpot": 0.7 * slow}))
    assert not searched.plain.admissible and "limits.tpot" in str(searched.plain.refusal)
    chosen = {part.method for part in searched.chosen.by_cell or [searched.chosen]}
    assert chosen <= {"draft_model", "dynamic_tree"}
    for estimate in searched.chosen.estimates:
        assert estimate.seconds_per_token.median <= 0.7 * slow


@pytest.mark.parametrize(
    ("changes", "key", "unit"),
    [
        ({"limits": {"tpot": 1e-5}}, "limits.tpot", " us"),
        ({"limits": {"ttft": 1e-5, "tpot": 1e-3}}, "limits.ttft", " us"),
        ({"limits": {"memory": 1.349e10}}, "limits.memory", " GB"),
        ({"device": "rtx-4090", "workload": workload(batch_sizes=[512])}, "device", " GB"),
    ],
)
def test_limits_that_nothing_keeps_are_infeasible(
    changes: dict[str, Any], key: str, unit: str, tmp_path: Path
) -> None:
    with pytest.raises(InfeasibleError) as caught:
        search(example_facts(tmp_path, **changes))
    assert caught.value.exit_code == 3
    assert caught.value.where == key and unit in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("changes", "part", "words"),
    [
        (
            {"device": "rtx-4090", "workload": workload(batch_sizes=[512])},
            "cache @kv",
            r"Cheapest: batch \d+ instead of 512 \(saves [\d.e+]+ GB\)\. Or: ",
        ),
        (
            {"limits": {"memory": 1.349e10}},
            "weights of target",
            r"Cheapest: .*\(saves [\d.e+]+ GB\).*weights in 4 bits.*a higher limits.memory",
        ),
    ],
)
def test_memory_refusals_name_the_largest_part_and_what_helps(
    changes: dict[str, Any], part: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InfeasibleError) as caught:
        search(example_facts(tmp_path, **changes))
    assert f"its largest part: {part}, " in caught.value.what
    assert re.search(words, str(caught.value.remedy))


def test_the_best_value_that_was_reached_is_reported(tmp_path: Path, result: SearchResult) -> None:
    best = min(max(e.seconds_per_token.median for e in c.estimates) for c in planned(result))
    words = rf"reaches {seconds_words(best)} \(.* to .*\) at best"
    with pytest.raises(InfeasibleError, match=words):
        search(example_facts(tmp_path, limits={"tpot": best / 2}))
    search(example_facts(tmp_path, limits={"tpot": best}))


def test_two_limits_may_exclude_each_other(tmp_path: Path, result: SearchResult) -> None:
    plain = result.plain.estimates[-1]
    limits = {
        "memory": plain.memory.total * 1.001,
        "tpot": min(e.seconds_per_token.median for e in result.chosen.estimates),
    }
    with pytest.raises(InfeasibleError):
        search(example_facts(tmp_path, limits=limits))


class Blind:
    """A device that knows all models but one, as a measured device would."""

    def __init__(self, device: Device, unknown: ModelShape) -> None:
        self._device, self._unknown = device, unknown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def forward_seconds(self, shape: ModelShape, *rest: Any) -> Seconds:
        if shape is self._unknown:
            raise UnpricedError(f"model {shape.name} was not measured")
        return self._device.forward_seconds(shape, *rest)


def test_what_the_device_does_not_know_is_refused(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    searched = search(replace(facts, device=Blind(facts.device, facts.drafts["draft"])))
    refused = [c for c in searched.candidates if c.method == "draft_model"]
    assert refused and all("was not measured" in str(c.refusal) for c in refused)
    assert not any(c.priced for c in refused)
    with pytest.raises(UsageError, match="specplan profile device") as caught:
        search(replace(facts, device=Blind(facts.device, facts.target)))
    assert caught.value.exit_code == 2


def test_memory_of_a_trace_is_that_of_its_longest_request(tmp_path: Path) -> None:
    lines = '{"prompt_tokens": 8, "output_tokens": 8}\n{"prompt_tokens": 800, "output_tokens": 8}'
    (tmp_path / "trace.jsonl").write_text(lines)
    searched = search(
        example_facts(tmp_path, workload={"batch_sizes": [1], "trace": "trace.jsonl"})
    )
    caches = [part for part in searched.plain.estimates[0].memory.parts if "cache" in part.name]
    slots = caches[0].bytes / searched.facts.target.kv_bytes_per_token
    assert slots >= 808
    assert searched.plain.estimates[0].prompt_tokens == 404


def test_progress_is_reported(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    searched = search(
        example_facts(tmp_path), on_progress=lambda done, of: progress.append((done, of))
    )
    settings = sum(not candidate.by_cell for candidate in searched.candidates)
    assert progress[-1] == (settings, settings)
    assert [done for done, _ in progress] == list(range(1, len(progress) + 1))


def test_the_report_is_json_and_complete(result: SearchResult) -> None:
    report = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert report["schema_version"] == 1
    assert Problem.model_validate(report["problem"]) == result.facts.problem
    assert len(report["candidates"]) == len(result.candidates)
    assert report["candidates"][report["chosen"]]["words"] == result.chosen.words
    assert report["candidates"][report["plain"]]["method"] == "autoregressive"
    for candidate in report["candidates"]:
        assert candidate["estimates"] or candidate["refusal"]
        for estimate in candidate["estimates"]:
            memory = sum(estimate["memory"].values())
            assert estimate["memory_bytes"]["mean"] == pytest.approx(memory)
    chosen = report["candidates"][report["chosen"]]
    assert parse_plan(chosen["plan"]) == result.chosen.plan


def test_a_schedule_runs_the_best_round_of_every_cell(tmp_path: Path) -> None:
    """Every load runs a round that is about as good as any that surely pays there."""
    lengths = {
        "batch_sizes": [64, 1, 8],
        "prompt_lengths": [16, 200],
        "output_tokens": 32,
        "temperature": 0.0,
    }
    result = search(example_facts(tmp_path, workload=lengths))
    chosen = result.chosen
    assert chosen.plan is not None and len(chosen.by_cell) == len(chosen.estimates) == 6
    loads = [(e.batch, e.prompt_tokens) for e in chosen.estimates]
    assert loads == [(b, p) for b in (64, 1, 8) for p in (16, 200)]
    singles = [c for c in result.candidates if c.admissible and not c.by_cell]
    assert score(chosen, "latency") < 0.99 * min(score(c, "latency") for c in singles)
    for index, (estimate, part) in enumerate(zip(chosen.estimates, chosen.by_cell, strict=True)):
        context = round(estimate.prompt_tokens + estimate.output_tokens / 2)
        name = select_round(chosen.plan, batch=estimate.batch, context=context)
        assert part.words == chosen.options[name]["words"]
        alone = part.estimates[index]
        assert estimate.decode_seconds == alone.decode_seconds
        assert estimate.request_seconds.median >= alone.request_seconds.median
        paying = [
            c for c in singles if c is result.plain or pays(c, result.plain, "latency")[index]
        ]
        best = min(c.estimates[index].decode_seconds.median for c in paying)
        assert alone.decode_seconds.median <= 1.1 * best
    report = json.loads(json.dumps(result.as_dict()))
    entry = report["candidates"][report["chosen"]]
    assert parse_plan(entry["plan"]) == chosen.plan and len(entry["estimates"]) == 6


def test_an_engine_that_switches_by_batch_alone_gets_such_a_schedule() -> None:
    grid = {"batch_sizes": [1, 8, 32], "prompt_lengths": [256, 1024, 4096], "output_tokens": 256}

    def schedule(**changes: Any) -> Candidate:
        # a stack with slow acceptance, where the best tree depends on the context, too
        problem = recorded("chat-8b-h100", workload=grid, device="h100-sxm@vllm-2024", **changes)
        candidates = optimize(problem).candidates
        (only,) = (candidate for candidate in candidates if candidate.by_cell)
        return only

    assert "context" in schedule(backend="none").words
    served = schedule(backend="vllm")
    assert served.admissible and "context" not in served.words
    words = [part.words for part in served.by_cell]
    assert [len({*words[row : row + 3]}) for row in (0, 3, 6)] == [1, 1, 1]
    assert len({*words}) == 2


def test_points_without_memory_leave_the_others_their_speculation(tmp_path: Path) -> None:
    """Of batch sizes 1, 16 and 512 the last fits without the drafter only, or not at all."""

    def planned(sizes: list[int], memory: float | None) -> SearchResult:
        limits = {} if memory is None else {"memory": memory}
        work = workload(batch_sizes=sizes)
        return search(
            example_facts(tmp_path, workload=work, limits=limits, methods=["draft_model"])
        )

    whole = planned([1, 16, 512], None)
    needed, drafter = whole.plain.estimates[2].memory.total, whole.facts.drafts["draft"]
    limit = needed + drafter.weight_bytes / 2
    searched = planned([1, 16, 512], limit)
    assert [part.method for part in searched.chosen.by_cell] == [
        "draft_model",
        "draft_model",
        "autoregressive",
    ]
    *drafting, last = searched.chosen.estimates
    plain = searched.plain.estimates[2]
    assert (last.memory.total, last.ttft) == (plain.memory.total, plain.ttft)
    assert all("weights of draft" in {part.name for part in e.memory.parts} for e in drafting)
    assert drafting[0].ttft.median > searched.plain.estimates[0].ttft.median
    assert searched.left_out == () and searched.speedup.low > 1.0
    (entry,) = unfit_data(searched)
    assert (entry["batch"], entry["drafting"], entry["allowed_bytes"]) == (512, True, limit)
    assert entry["needed_bytes"] > limit and entry["enough"]
    (way,) = (re.match(r"batch (\d+) instead of 512", one) for one in entry["ways"][:1])
    assert way is not None
    assert unfit(searched.facts, searched.chosen.plan, int(way[1]), 40).needed <= limit
    assert unfit(searched.facts, searched.chosen.plan, int(way[1]) + 1, 40).needed > limit
    (words,) = memory_words({"unfit": [entry]})
    assert "No memory for the drafter: 512 x 40" in words and "To fit: batch" in words

    smaller = planned([1, 16, 512], 0.99 * needed)
    unlimited = planned([1, 16], None)
    assert smaller.left_out == ((512, 40),)
    assert smaller.chosen.words == unlimited.chosen.words != "plain"
    assert smaller.speedup == unlimited.speedup
    for one, other in zip(drafting, unlimited.chosen.estimates, strict=True):
        ratio = one.seconds_per_token.median / other.seconds_per_token.median
        assert ratio == pytest.approx(1.0, abs=0.02)
    (entry,) = unfit_data(smaller)
    assert (entry["batch"], entry["drafting"], entry["needed_bytes"]) == (512, False, needed)


def test_loads_that_fit_with_no_plan_are_left_out(tmp_path: Path) -> None:
    """A table of loads loses the cells that are too large; the best of each cell is told."""
    lengths = {
        "batch_sizes": [1, 64],
        "prompt_lengths": [16, 300],
        "output_tokens": 32,
        "temperature": 0.0,
    }
    whole = search(example_facts(tmp_path, workload=lengths))
    assert whole.left_out == ()
    needed = [estimate.memory.total for estimate in whole.plain.estimates]
    limit = (needed[2] + needed[3]) / 2
    assert needed[3] == max(needed) and needed[2] < limit
    searched = search(example_facts(tmp_path, workload=lengths, limits={"memory": limit}))
    assert searched.left_out == ((64, 300),)
    assert [(e.batch, e.prompt_tokens) for e in searched.plain.estimates] == [
        (1, 16),
        (1, 300),
        (64, 16),
    ]
    assert searched.as_dict()["left_out"] == [[64, 300]]
    for index, best in enumerate(searched.best_of_each):
        assert best is not None
        times = [
            c.estimates[index].request_seconds.median
            for c in searched.candidates
            if c.priced and c.estimates[index].memory.total <= limit
        ]
        assert best.estimates[index].request_seconds.median <= 1.25 * min(times)
