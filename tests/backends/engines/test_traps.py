"""Settings that engines take and that do harm, or that they refuse only when they start."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.engines.checkpoints import can_share, form_of, read_config
from specplan.backends.engines.job import Emission, Load
from specplan.backends.engines.registry import open_table, project
from specplan.backends.engines.structure import read_structure
from specplan.backends.engines.writing import check_documents
from specplan.cost_models.intervals import Interval
from specplan.ir.errors import SpecplanError
from specplan.ir.plan import Plan
from tests.backends.engines.examples import (
    by_batch,
    job,
    plans,
    setting,
    shrinking_head,
    stopping,
    with_form,
)


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
        assert "page-size" not in settings
    else:
        assert three == ([6, 10, 60] if name.startswith("head") else [3, 2, 9])
        assert settings["page-size"] == 1


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
    lookup = stopping("prompt_lookup", "up to 8 tokens after a match of 1 to 8")
    stops = emitted("tensorrt_llm", lookup)["tensorrt_llm.yaml"]["speculative_config"]
    assert stops["draft_len_schedule"] == {4: 8}, "above the last key it drafts nothing"


def test_tensorrt_llm_counts_accepted_tokens_without_the_bonus() -> None:
    for engine, word in (("tensorrt_llm", "ACCEPTED_TOKENS=1.25"), ("sglang", "ACC_LEN=2.25")):
        table = open_table(engine)
        given = job(table, plans()["head"])
        forced = project(table, given).forced
        assert forced is not None and word in forced.at(given.loads[0])[0]


LOADS = (Load(1, 40, 32, Interval(3.6, 3.0, 4.0), Interval(100.0, 90.0, 110.0)),
         Load(16, 40, 32, Interval(2.1, 2.0, 2.2), Interval(900.0, 800.0, 990.0)))  # fmt: skip


@pytest.mark.parametrize("engine", ["vllm", "llama_cpp"])
def test_acceptance_is_forced_to_the_prediction_of_every_length(engine: str) -> None:
    """One mean length for all loads was off by up to 27 % at the shorter drafts of a schedule."""
    plan = shrinking_head() if engine == "vllm" else plans()["head"]
    table = open_table(engine)
    given = replace(job(table, plan), loads=LOADS)
    rates = given.acceptance_rates
    assert list(rates) == sorted(rates, reverse=True) and len(rates) == given.drafting.tokens
    if engine == "llama_cpp":
        assert sum(rates) == pytest.approx((3.6 + 2.1) / 2 - 1, abs=1e-6)
        forced = project(table, given).forced
        assert forced is not None and forced.command.endswith(f"{rates[-1]:.6f}")
        return
    assert sum(rates) == pytest.approx(2.6, abs=1e-6), "five tokens are drafted up to batch 4"
    assert sum(rates[:2]) == pytest.approx(1.1, abs=1e-6), "two above"
    written = project(table, given).documents["forced.yaml"]["speculative-config"]
    assert written["synthetic_acceptance_rates"] == pytest.approx(rates, abs=1e-6)


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("vllm", "past"), ("vllm@0.29", "text"), ("sglang", "past"), ("tensorrt_llm", "text"),
        ("sglang", "head_dynamic_tree"), ("llama_cpp", "text"),
    ],
)  # fmt: skip
def test_no_switch_is_written_where_forcing_fails(engine: str, name: str) -> None:
    """Random prompts hold no match; SGLang's switch ends the server where trees are verified."""
    table = open_table(engine)
    emission = project(table, job(table, plans()[name]))
    assert emission.forced is None and "forced.yaml" not in emission.documents


def test_vllm_suffix_decoding_drafts_the_plans_length_at_every_batch() -> None:
    settings = emitted("vllm", plans()["past"])["vllm.yaml"]["speculative-config"]
    shortest, longest = read_structure(plans()["past"]).longest.match
    assert settings["suffix_decoding_max_tree_depth"] >= longest + 8
    assert settings["suffix_decoding_max_spec_factor"] * shortest >= 8
    table = open_table("vllm")
    assert "arctic-inference==0.1.1" in str(project(table, job(table, plans()["past"])).notes)
    stops = stopping("suffix", "up to 8 tokens of past outputs")
    for engine in ("vllm", "vllm@0.32", "ray_serve", "dynamo"):
        assert "AssertionError" in str(open_table(engine).refusals(stops))


def test_sglang_copies_nothing_from_prompts() -> None:
    assert "nothing is copied from a prompt" in str(open_table("sglang").refusals(plans()["text"]))
    settings = emitted("sglang", plans()["past"])["sglang.yaml"]
    assert settings["speculative-ngram-max-trie-depth"] > settings["speculative-num-draft-tokens"]


def test_checkpoints_that_an_engine_does_not_load(repository: Path) -> None:
    plan = plans()["head"]
    for engine in ("sglang", "tensorrt_llm", "openvino_genai", "tensorrt_edge_llm"):
        table = with_form(open_table(engine), plan, "eagle/speculators")
        assert "EAGLE-3 head in the layout of speculators" in str(table.refusals(plan))
    assert not with_form(open_table("vllm"), plan, "eagle/speculators").refusals(plan)
    for engine in ("tensorrt_llm", "llama_cpp", "openvino_genai", "tensorrt_edge_llm"):
        assert "EAGLE-1" in str(with_form(open_table(engine), plan, "eagle1").refusals(plan))
    for engine, named in (("vllm", "eagle1/sglang"), ("sglang", "eagle1")):
        refused = str(with_form(open_table(engine), plan, named).refusals(plan))
        assert "config.json must name the class" in refused
    assert form_of(read_config(repository / "examples/reference_models/heads/eagle")) == "eagle1"
    assert form_of({"architectures": ["LlamaForCausalLMEagle"]}) == "eagle1/sglang"
    assert form_of({"speculators_model_type": "eagle"}) == "eagle1/speculators"
    assert form_of({"speculators_model_type": "peagle"}) == "p_eagle/speculators"
    assert form_of({"speculators_model_type": "eagle3"}) == "eagle/speculators"
    assert form_of({"architectures": ["LlamaForCausalLMEagle3"]}) == "eagle"
    assert form_of({"architectures": ["LlamaForCausalLMEagle3"], "ptd_token_id": 1}) == "p_eagle"
    assert form_of({"architectures": ["DFlashDraftModel"], "dflash_config": {}}) == "dflash"
    assert form_of({"architectures": ["DFlashDraftModel"], "markov_rank": 64}) == "dspark"
    assert form_of({"architectures": ["LlamaForCausalLM"], "pard_token": 5}) == "pard"
    assert form_of({"architectures": ["LlamaForCausalLM"]}) == "model" and form_of({}) == ""


def test_tensorrt_llm_reads_the_layers_of_the_checkpoint_itself() -> None:
    speculative = emitted("tensorrt_llm", plans()["block"])["tensorrt_llm.yaml"]
    assert "target_layer_ids" not in speculative["speculative_config"]
    for name in ("model", "head"):
        assert (
            "disable_overlap_scheduler"
            not in emitted("tensorrt_llm", plans()[name])["tensorrt_llm.yaml"]
        )
    lookup = emitted("tensorrt_llm", plans()["text"])["tensorrt_llm.yaml"]
    assert lookup["speculative_config"]["is_use_oldest"] is False
    shrinking = by_batch(
        [
            ("batch <= 4", setting("block_drafter", "5 of a block of 7 by flash")),
            ("", setting("block_drafter", "2 of a block of 7 by flash")),
        ]
    )
    assert not open_table("tensorrt_llm").refusals(shrinking)


def test_edge_builds_into_one_folder_and_speculates() -> None:
    table = open_table("tensorrt_edge_llm")
    for name, steps in (("head", 3), ("modules", 2), ("block", 1)):
        command = project(table, job(table, plans()[name])).command
        build_target, build_draft = command.split("llm_build")[1:]
        run = command.split("llm_inference")[1]
        for build in (build_target, build_draft):
            assert "--engineDir engines " in build and "--maxInputLen 40" in build
        assert "--specDecode" in run and "--inputFile requests.json" in run
        assert f"--specDraftStep {steps}" in run
    assert "--eagle-base" in project(table, job(table, plans()["head"])).command


def test_onnxruntime_counts_the_token_after_a_match() -> None:
    overlay = emitted("onnxruntime_genai", plans(1)["text"])["genai_config.overlay.json"]
    assert overlay["speculative"]["ngram_size"] == 1 + 1, "the plan matches one token at least"


def test_what_the_engines_have_besides_lengths() -> None:
    blocks = emitted("vllm", plans()["model_blocks"])["vllm.yaml"]["speculative-config"]
    assert blocks["rejection_sample_method"] == "block"
    assert blocks["draft_sample_method"] == "probabilistic"


def test_heads_are_drawn_from_where_an_engine_does_so() -> None:
    drawn = setting("eagle3", "chain of 3 by head, drawn", 0.8)
    ranked = setting("eagle3", "chain of 3 by head", 0.8)
    settings = [
        emitted("vllm", plan)["vllm.yaml"]["speculative-config"] for plan in (drawn, ranked)
    ]
    assert settings[0]["draft_sample_method"] == "probabilistic"
    assert "draft_sample_method" not in settings[1]
    for engine in ("sglang", "tensorrt_llm"):
        (refusal,) = open_table(engine).refusals(drawn)
        assert refusal.reason == "it drafts the best ranks, the plan draws"
        assert not open_table(engine).refusals(ranked)
    assert "rule block" in str(open_table("vllm@0.32").refusals(plans()["model_blocks"]))
    parallel = emitted("vllm", plans()["model_parallel"])["vllm.yaml"]["speculative-config"]
    assert parallel["parallel_drafting"] is True and parallel["method"] == "draft_model"
    pard = emitted("tensorrt_llm", plans()["model_parallel"])["tensorrt_llm.yaml"]
    assert pard["speculative_config"]["decoding_type"] == "PARD"
    automaton = emitted("tensorrt_llm", plans()["automaton"])["tensorrt_llm.yaml"]
    assert automaton["speculative_config"]["enable_global_pool"] is False
    bar = emitted("llama_cpp", plans()["model_bar"])["llama_cpp.json"]
    assert (bar["spec-draft-p-min"], bar["spec-draft-n-max"]) == (0.4, 10)
    exact = emitted("openvino_genai", plans()["model_bar"])["openvino_genai.json"]
    assert exact["generation_config"]["assistant_confidence_threshold"] == 0.4
    success = emitted("transformers", plans(1)["model_success"])["generate.json"]["drafting"]
    assert success["num_assistant_tokens_schedule"] == "heuristic_transient"


@pytest.mark.parametrize(("form", "method"), [("dspark", "dspark"), ("p_eagle", "eagle3")])
def test_vllm_drafts_with_blocks_of_every_form(form: str, method: str) -> None:
    plan = plans()["block"]
    table = with_form(open_table("vllm"), plan, form)
    settings = project(table, job(table, plan)).documents["vllm.yaml"]["speculative-config"]
    assert settings["method"] == method
    assert settings.get("parallel_drafting", False) is (form == "p_eagle")


def test_a_drafter_that_not_all_devices_share_is_refused_by_name() -> None:
    assert not can_share({"num_attention_heads": 14}, 4) and can_share({}, 4)
    plan = plans()["model"]
    for engine, why in (("vllm", "draft_model.py"), ("sglang", "14343"), ("tensorrt_llm", "11838")):
        table = open_table(engine)
        assert not table.refusals(plan)
        (refusal,) = replace(table, copied=frozenset({"draft"})).refusals(plan)
        assert "among all of the target's devices" in refusal.words and why in refusal.words


BROKEN: list[tuple[str, str, Callable[[dict[str, Any]], Any]]] = [
    ("vllm", "head", lambda d: d["vllm.yaml"]["speculative-config"].update(tensor_parallel_size=8)),
    ("vllm", "head", lambda d: d["vllm.yaml"]["speculative-config"].pop("model")),
    ("vllm", "text", lambda d: d["vllm.yaml"]["speculative-config"].pop("prompt_lookup_min")),
    ("vllm", "text", lambda d: d["vllm.yaml"].update({"dtype": "float64"})),
    ("sglang", "head", lambda d: d["sglang.yaml"].pop("speculative-eagle-topk")),
    ("sglang", "head", lambda d: d["sglang.yaml"].update({"speculative-eagle-topk": 4})),
    ("sglang", "model", lambda d: d["sglang.yaml"].update({"speculative-adaptive": True})),
    (
        "vllm",
        "past",
        lambda d: d["vllm.yaml"]["speculative-config"].update(
            num_speculative_tokens_per_batch_size=[[1, 1, 8]]
        ),
    ),
    ("tensorrt_llm", "text", lambda d: d["tensorrt_llm.yaml"].pop("disable_overlap_scheduler")),
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
    with pytest.raises(SpecplanError, match="does not fit the engine's schema"):
        check_documents(engine, Emission(documents))
