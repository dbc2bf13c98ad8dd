"""Settings that engines take and that do harm, or that they refuse only when they start."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from specplan.backends.engines.job import Emission
from specplan.backends.engines.registry import open_table, project
from specplan.backends.engines.writing import check_documents
from specplan.ir.errors import SpecplanError
from specplan.ir.plan import Plan
from tests.backends.engines.examples import job, plans, setting, shrinking_head, stopping


def emitted(engine: str, plan: Plan, devices: int = 1) -> dict[str, Any]:
    table = open_table(engine)
    assert not table.refusals(plan)
    emission = project(table, job(table, plan, devices))
    check_documents(engine, emission)
    return dict(emission.documents)


def test_vllm_never_shares_the_drafter_by_the_targets_option() -> None:
    settings = emitted("vllm", plans()["head"], devices=8)["vllm.yaml"]
    assert settings["tensor-parallel-size"] == 8
    assert "tensor_parallel_size" not in settings["speculative-config"]
    assert settings["speculative-config"]["draft_tensor_parallel_size"] == 8


@pytest.mark.parametrize("plan", [shrinking_head(), stopping("eagle3", "chain of 5 by head")])
def test_vllm_ranges_cover_every_batch_once(plan: Plan) -> None:
    settings = emitted("vllm", plan)["vllm.yaml"]
    speculative = settings["speculative-config"]
    covered = []
    for first, last, tokens in speculative["num_speculative_tokens_per_batch_size"]:
        covered += range(first, last + 1)
        assert 0 <= tokens <= speculative["num_speculative_tokens"]
    assert covered == list(range(1, settings["max-num-seqs"] + 1))


def test_vllm_drafts_whole_turns_of_several_modules() -> None:
    one = plans()["modules"]
    odd = setting("mtp", "chain of 3 by the target's modules")
    assert not open_table("vllm").refusals(one) and not open_table("vllm").refusals(odd)


@pytest.mark.parametrize(
    "name", ["model", "head", "modules", "model_dynamic_tree", "head_dynamic_tree"]
)
def test_sglang_gets_all_three_and_counts_the_root(name: str) -> None:
    settings = emitted("sglang", plans()[name])["sglang.yaml"]
    three = [
        settings[f"speculative-{key}"] for key in ("num-steps", "eagle-topk", "num-draft-tokens")
    ]
    if three[1] == 1:
        assert three[2] == three[0] + 1
        assert "disable-overlap-schedule" not in settings
    else:
        assert three == ([6, 10, 60] if name.startswith("head") else [3, 2, 9])
        assert settings["disable-overlap-schedule"] is True and settings["page-size"] == 1


def test_sglang_adapts_by_the_first_batch_size_of_each_range() -> None:
    documents = emitted("sglang", shrinking_head())
    assert documents["sglang.yaml"]["speculative-eagle-topk"] == 1
    slots = {key: slot for key, slot in documents["adaptive.json"].items() if key.isdigit()}
    assert slots == {"1": {"candidate_steps": [5]}, "5": {"candidate_steps": [2]}}


def test_tensorrt_llm_schedules_reach_the_largest_batch_for_drafters_with_a_cache() -> None:
    settings = emitted("tensorrt_llm", shrinking_head())["tensorrt_llm.yaml"]
    speculative = settings["speculative_config"]
    schedule = speculative["draft_len_schedule"]
    assert schedule == {4: 5, 16: 2}
    assert max(schedule) == settings["max_batch_size"]
    assert schedule[min(schedule)] == speculative["max_draft_len"]
    lookup = stopping("prompt_lookup", "up to 8 tokens after a match of 1 to 3")
    stops = emitted("tensorrt_llm", lookup)["tensorrt_llm.yaml"]["speculative_config"]
    assert stops["draft_len_schedule"] == {4: 8}, "above the last key it drafts nothing"


def test_tensorrt_llm_counts_accepted_tokens_without_the_bonus() -> None:
    table = open_table("tensorrt_llm")
    forced = project(table, job(table, plans()["head"])).forced
    assert forced is not None and "FORCE_NUM_ACCEPTED_TOKENS=1.25" in forced.command
    for engine in ("vllm", "sglang"):
        table = open_table(engine)
        emission = project(table, job(table, plans()["head"]))
        assert "2.25" in str((emission.forced, emission.documents))


BROKEN: list[tuple[str, str, Callable[[dict[str, Any]], Any]]] = [
    ("vllm", "head", lambda d: d["vllm.yaml"]["speculative-config"].update(tensor_parallel_size=8)),
    ("vllm", "head", lambda d: d["vllm.yaml"]["speculative-config"].pop("model")),
    ("vllm", "text", lambda d: d["vllm.yaml"]["speculative-config"].pop("prompt_lookup_min")),
    ("vllm", "text", lambda d: d["vllm.yaml"].update({"dtype": "float64"})),
    ("sglang", "head", lambda d: d["sglang.yaml"].pop("speculative-eagle-topk")),
    ("sglang", "head", lambda d: d["sglang.yaml"].update({"speculative-eagle-topk": 4})),
    ("sglang", "model", lambda d: d["sglang.yaml"].update({"speculative-adaptive": True})),
    ("tensorrt_llm", "model", lambda d: d["tensorrt_llm.yaml"].pop("disable_overlap_scheduler")),
    (
        "tensorrt_llm",
        "head",
        lambda d: d["tensorrt_llm.yaml"]["speculative_config"].update(draft_len_schedule={1: 0}),
    ),
    ("transformers", "model", lambda d: d["generate.json"].pop("drafting")),
    (
        "onnxruntime_genai",
        "model",
        lambda d: d["genai_config.overlay.json"]["speculative"].update(ngram_size=3),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "name", "breaks"), BROKEN)
def test_what_an_engine_would_refuse_is_never_written(
    engine: str, name: str, breaks: Callable[[dict[str, Any]], Any]
) -> None:
    table = open_table(engine)
    emission = project(table, job(table, plans(1)[name]))
    check_documents(engine, emission)
    documents = copy.deepcopy(dict(emission.documents))
    breaks(documents)
    with pytest.raises(SpecplanError, match="not what the engine takes"):
        check_documents(engine, Emission(documents))
