"""Draft models on fewer devices than the target: prices by hand, memory, and what is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.memory.plan_memory import plan_memory
from specplan.cost_models.memory.runtime import Runtime
from specplan.cost_models.models.forward import shared, splits_evenly
from specplan.cost_models.models.model_shape import ModelShape
from specplan.emitting.projecting import emit
from specplan.ir.errors import SpecplanError
from specplan.planner.drafters.sharing import sharing_words, with_copies
from specplan.planner.explain.assumptions import assumptions
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.search import search
from tests.planner.big_models import write_70b
from tests.planner.checkpoints import CONFIG
from tests.planner.example_facts import (
    SEVEN_BILLION,
    SIXTY_EIGHT_MILLION,
    example_facts,
    example_problem,
)

LARGE_TARGET = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
MODEL = {"methods": ["autoregressive", "draft_model"], "sources": [], "backend": "none"}


def test_a_copy_takes_what_one_device_does_and_sharing_adds_the_exchanges() -> None:
    """Of 2 layers of 8 hidden numbers in float32 and 28 tokens, bound by memory alone."""
    shape = ModelShape.from_config({**CONFIG, "num_hidden_layers": 2}, dtype="float32")
    one = AnalyticDevice(
        "toy", 1e9, 1e6, {"float32": 1e30}, link_bandwidth=1e5, seconds_per_collective=1e-3
    )
    pair, copied = one.times(2), replace(shape, shared_by=1)
    parameters = 2 * (8 * 8 * 2 + 8 * 4 * 2 + 3 * 8 * 12) + 28 * 8
    outputs = 2 * (8 + 4 + 4 + 8 + 12 + 12 + 8) + 28
    inputs = 2 * (8 + 8 + 8 + 12) + 8
    attention = 2 * (8 + 8 + 2 * 4)  # query and output, and the keys and values of one token
    alone = 4 * (parameters + outputs + inputs + attention) / 1e6
    time = pair.forward_seconds(copied, 1, 1, 0).median
    assert time == one.forward_seconds(shape, 1, 1, 0).median
    assert time == pytest.approx(alone, rel=0.03)
    exchanges = 4 * (1e-3 + 4 * 8 / 1e5) + 1e-3 + 4 * 28 / 2 / 1e5  # all-reduces, and of logits
    assert pair.forward_seconds(shape, 1, 1, 0).median == pytest.approx(
        exchanges + alone / 2, rel=0.1
    )


def test_memory_has_a_copy_of_the_draft_model_on_every_device(tmp_path: Path) -> None:
    facts = example_facts(tmp_path, device="8xh200", **MODEL)
    plan = next(c.plan for c in search(facts).candidates if c.plan and "draft" in c.plan.models_run)
    load, eight = (4, 1000), Runtime(devices=8)
    copied = facts.shapes | {"draft": replace(facts.shapes["draft"], shared_by=1)}
    sizes = [
        {part.name: part.bytes for part in plan_memory(plan, shapes, *load, runtime=runtime).parts}
        for shapes, runtime in ((facts.shapes, Runtime()), (copied, eight))
    ]
    (cache,) = [state.name for state in plan.caches if state.model == "draft"]
    for name in ("weights of draft", f"cache @{cache}"):
        assert sizes[1][name] == 8 * sizes[0][name]
    assert sizes[1]["weights of target"] == sizes[0]["weights of target"]
    pairs = facts.shapes | {"draft": replace(facts.shapes["draft"], shared_by=4)}
    parts = {part.name: part.bytes for part in plan_memory(plan, pairs, *load, runtime=eight).parts}
    assert parts["weights of draft"] == 2 * sizes[0]["weights of draft"]


SMALL = SIXTY_EIGHT_MILLION | {"num_hidden_layers": 12}
CASES: list[tuple[Mapping[str, Any], Mapping[str, Any], int | None]] = [
    (SEVEN_BILLION, SMALL, 1),  # its 25 exchanges take longer than what they save
    (LARGE_TARGET, SEVEN_BILLION, None),  # 13 GB on one device take longer than 65 exchanges
]


@pytest.mark.parametrize(("target", "draft", "shared_by"), CASES)
def test_the_search_copies_small_draft_models_and_shares_large_ones(
    tmp_path: Path, target: Mapping[str, Any], draft: Mapping[str, Any], shared_by: int | None
) -> None:
    draft = {**draft, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64}
    facts = example_facts(tmp_path, device="8xh200", target=target, draft=draft, **MODEL)
    result = search(facts)
    assert result.chosen.plan is not None and "draft" in result.chosen.plan.models_run
    (stated,) = result.facts.problem.models.drafts
    assert stated.tensor_parallel == result.facts.drafts["draft"].shared_by == shared_by
    sentence = '"draft" runs on 1 of the 8 devices, and in copies on the others'
    assert (sentence in assumptions(result)) is (shared_by == 1)
    if shared_by == 1:
        whole = search(replace(facts, problem=_stating(facts.problem, 8)))
        assert result.chosen.estimate and whole.chosen.estimate
        ours, theirs = result.chosen.estimate.decode_seconds, whole.chosen.estimate.decode_seconds
        assert (ours.median < theirs.median).all()
        assert with_copies(result.facts) is None  # it is stated now, and a bundle has it


def _stating(problem: Any, count: int) -> Any:
    drafts = tuple(
        one.model_copy(update={"tensor_parallel": count}) for one in problem.models.drafts
    )
    return problem.model_copy(
        update={"models": problem.models.model_copy(update={"drafts": drafts})}
    )


def test_engines_share_every_drafter(tmp_path: Path) -> None:
    """A plan with copies gives way to one without, and says what that loses."""
    facts = example_facts(tmp_path, device="4xh200", draft=SMALL, **MODEL)
    assert with_copies(facts) is not None
    for engine in ("vllm", "sglang@0.5.23", "tensorrt_llm"):
        served = facts.problem.model_copy(update={"backend": engine})
        assert with_copies(replace(facts, problem=served)) is None
    stated = example_problem(device="4xh200", acceptance={"draft": 0.9}, **MODEL)
    projection = emit(problem_from_dict(stated, tmp_path), "vllm", out=tmp_path / "out")
    assert "among all of the target's devices" in projection.refusals[0]
    assert projection.ratio is not None and projection.ratio.mean < 1.0
    written = projection.emission.documents["vllm.yaml"]
    assert written["speculative-config"]["draft_tensor_parallel_size"] == 4


def test_heads_that_do_not_divide_leave_a_draft_model_on_fewer_devices(tmp_path: Path) -> None:
    shape = ModelShape.from_config({**CONFIG, "num_attention_heads": 6, "head_dim": 4})
    assert not splits_evenly(shape, 4) and shared(shape, None, 4).shared_by == 2
    assert shared(shape, None, 3).shared_by is None and shared(shape, 1, 3).shared_by == 1
    facts = example_facts(tmp_path, device="8xh200", **MODEL)  # 12 heads
    assert facts.drafts["draft"].shared_by == 4
    assert sharing_words(facts) == {
        "draft": '"draft" runs on 4 of the 8 devices, and in copies on the others'
    }


@pytest.mark.parametrize(
    ("device", "stated", "what"),
    [("8xh200", 3, "3 does not divide the 8"), ("h200", 2, "2 does not divide the 1")],
)
def test_numbers_that_do_not_divide_are_refused(
    tmp_path: Path, device: str, stated: int, what: str
) -> None:
    example_facts(tmp_path)
    value = example_problem(device=device)
    value["models"]["drafts"][0]["tensor_parallel"] = stated
    with pytest.raises(SpecplanError, match=what) as error:
        problem_from_dict(value, tmp_path)
    assert "models.drafts.0.tensor_parallel" in str(error.value)


def test_heads_and_layers_outside_of_memory_are_not_copied(tmp_path: Path) -> None:
    write_70b(tmp_path)
    drafts = [{"name": "eagle", "path": "eagle", "tensor_parallel": 1}]
    value = example_problem(device="8xh200") | {
        "models": {"target": {"path": "target"}, "drafts": drafts}
    }
    with pytest.raises(SpecplanError, match="a head runs on all of the target's devices"):
        problem_from_dict(value, tmp_path)
    drafts[0] = {"name": "big", "path": "target", "placement": {"link": "host"}}
    drafts[0]["tensor_parallel"] = 1
    with pytest.raises(SpecplanError, match="layers outside of memory are read by all devices"):
        problem_from_dict(value | {"backend": "none"}, tmp_path)
