"""Prompts read by a pool of their own: times, memory and capacity of a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specplan.emitting.jobs import DECODES_ONLY
from specplan.emitting.projecting import emit
from specplan.ir.errors import SpecplanError
from specplan.planner.explain.assumptions import assumptions
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.search import SearchResult, search
from tests.planner.example_facts import example_facts, example_problem, workload

LONG = workload(batch_sizes=[1, 8, 32], prompt_tokens=2000, output_tokens=64, request_rate=4.0)


def searched(folder: Path, **changes: Any) -> SearchResult:
    settings = {"methods": ["draft_model"], "workload": LONG, "objective": "goodput"} | changes
    return search(example_facts(folder, **settings))


def test_a_pool_reads_prompts_on_its_own_device_and_moves_their_caches(tmp_path: Path) -> None:
    rate = LONG | {"request_rate": 0.01}
    pool = {"device": "2xh100-sxm", "replicas": 3, "bandwidth": 10e9}
    result = searched(tmp_path, serving={"pool": pool}, workload=rate)
    here = searched(tmp_path, workload=rate)
    plain, alone = result.plain.estimates[0], here.plain.estimates[0]
    target = result.facts.target
    moved = 2000 * 2 * 32 * 32 * 128 * 2 / 10e9  # keys and values of 32 heads in 32 layers
    assert plain.transfer == pytest.approx(moved)
    reading = result.facts.device.prefill_seconds(target, 1, 2000).median
    assert alone.prefill.median == pytest.approx(reading) and not alone.transfer
    pair = search(
        example_facts(tmp_path, device="2xh100-sxm", methods=["autoregressive"], workload=_still())
    )
    assert plain.prefill.median == pytest.approx(pair.plain.estimates[0].prefill.median + moved)
    served = result.served_by(result.plain)
    assert served is not None
    (at,) = served.mean.lengths
    first = plain.prefill.median + plain.seconds_per_round.median
    assert float(at.times.ttft) == pytest.approx(first, rel=1e-3)  # no queue at this rate
    names = {part.name: part.bytes for part in plain.memory.parts}
    before = {part.name: part.bytes for part in alone.memory.parts}
    assert names["activations"] < before["activations"] / 50  # of a step, not of a prompt
    assert names["weights of target"] == before["weights of target"]
    words = "prompts are read by 3 groups of 2xh100-sxm, and their caches move at 10 GB/s"
    assert words in assumptions(result)
    # With a draft model its cache is read and moved too.
    drafting = next(c for c in result.candidates if c.plan and "draft" in c.plan.models_run)
    assert drafting.estimates[0].transfer == pytest.approx(moved + 2000 * 2 * 2 * 768 * 2 / 10e9)


def _still() -> dict[str, Any]:
    return {name: value for name, value in LONG.items() if name != "request_rate"}


def test_steps_without_prompts_serve_more_and_more_readers_bear_more(tmp_path: Path) -> None:
    most, tpot = [], []
    for serving in (
        {"prefill": "chunked"},
        {"pool": {"device": "h200"}},
        {"pool": {"device": "h200", "replicas": 8}},
    ):
        served = searched(tmp_path, serving=serving, methods=["autoregressive"]).at_load
        assert served is not None
        (at,) = served.mean.lengths
        most.append(float(served.mean.most))
        tpot.append(float(at.times.tpot))
    assert most[0] < most[2] and most[1] < most[2] and tpot[2] <= tpot[1] < tpot[0]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"serving": {"pool": {"device": "h200"}, "prefill": "first"}}, "serving.pool"),
        ({"serving": {"pool": {"device": "h201"}}}, "serving.pool.device"),
        ({"serving": {"pool": {"device": "rtx-4060"}}}, "serving.pool.device"),
        (
            {"serving": {"pool": {"device": "h200"}}, "objective": "tpot", "workload": _still()},
            "no effect",
        ),
    ],
)
def test_pools_that_cannot_be_are_refused(
    tmp_path: Path, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(SpecplanError, match=what):
        searched(tmp_path, **changes)


def test_what_is_written_for_an_engine_says_that_it_decodes(tmp_path: Path) -> None:
    example_facts(tmp_path)
    value = example_problem(
        workload=LONG,
        objective="goodput",
        serving={"pool": {"device": "h200", "replicas": 2}},
        acceptance={"draft": 0.8},
        backend="vllm",
        sources=[],
    )
    projection = emit(problem_from_dict(value, tmp_path), "vllm", out=tmp_path / "out")
    assert projection.emission.notes[-1] == DECODES_ONLY
    assert DECODES_ONLY in (tmp_path / "out/README.md").read_text()
