"""Predicted bytes are those that the allocator really gave; refusals name what would help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.memory.buffers import round_buffers, round_peak
from specplan.cost_models.memory.plan_memory import (
    cache_bytes,
    largest,
    largest_batch,
    plan_memory,
    speculative_slots,
)
from specplan.cost_models.memory.remedies import Need, remedies
from specplan.cost_models.memory.runtime import Runtime, runtime_of
from specplan.cost_models.models.forward import splits_evenly
from specplan.cost_models.models.layers import DenseMlp
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import number_format
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.passes.pipeline import run_passes
from tests.backends.window_plans import windows
from tests.cost_models.models.layered_shapes import DEEPSEEK_LATENT, layered
from tests.cost_models.models.public_shapes import CONFIGS, llama, shape
from tests.ir.plans_on_disk import plan_of, text_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specplan.backends.eager.backend import EagerBackend  # noqa: E402
from specplan.backends.static.executable import StaticExecutable  # noqa: E402
from specplan.measure.device.probes import budget_probes, plain_plan, probe_of_width, probes  # noqa: E402
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from tests.cost_models.memory.allocations import (  # noqa: E402
    peak_of_rounds,
    peak_of_second_round,
    requests_for,
    weights_of,
)

torch.set_num_threads(1)
REFERENCE = Path(__file__).parents[3] / "examples" / "reference_models"
Models = tuple[dict[str, CausalModel], dict[str, ModelShape]]


def probe(name: str, greedy: bool = True) -> Plan:
    parts = [SmallCache("target", 64, "retrieved")]
    every = (*probes(("draft",), greedy, 1000), *budget_probes(parts, greedy))
    return {one.name: one.plan for one in every}[name]


@pytest.fixture(scope="module")
def reference() -> Models:
    roles = ("target", "draft")
    return (
        {role: load_model(REFERENCE / role) for role in roles},
        {role: ModelShape.from_folder(REFERENCE / role) for role in roles},
    )


@pytest.mark.parametrize(
    ("name", "greedy", "batch", "prompt"),
    [
        ("autoregressive", True, 1, 60),
        ("autoregressive", False, 6, 60),
        ("chain 7 by draft", True, 1, 150),
        ("chain 7 by draft", False, 4, 10),
        ("bush 8 by draft", True, 4, 10),
        ("bush 8 by draft", False, 3, 10),
        ("lookup 10", True, 8, 40),
        ("lookup 10", False, 4, 10),
        ("windows of 8", False, 4, 10),
        ("chain 1 with 64 retrieved tokens", True, 3, 150),
    ],
)
def test_reference_models_allocate_what_was_predicted(
    reference: Models, name: str, greedy: bool, batch: int, prompt: int
) -> None:
    """Weights to the byte; caches to 1 %; caches and workspace, and everything, to 5 %."""
    models, shapes = reference
    windowed = name.startswith("windows")
    plan = parse_plan(windows(8, drawn=True)) if windowed else probe(name, greedy)
    caches, peak = peak_of_rounds(plan, models, batch, prompt, 40, 3)
    weights = weights_of([models[role] for role in plan.models_run])
    memory = plan_memory(plan, shapes, batch, prompt + 40, prompt)
    parts = {part.name: part.bytes for part in memory.parts}
    predicted_weights = sum(size for part, size in parts.items() if part.startswith("weights"))
    predicted_caches = parts["positions and texts"]
    predicted_caches += sum(
        size for part, size in parts.items() if part.startswith(("cache", "queries"))
    )
    assert predicted_weights == pytest.approx(weights, rel=1e-3)
    assert predicted_caches == pytest.approx(caches, rel=0.01)
    assert memory.total == pytest.approx(weights + peak, rel=0.02)
    # the scratch of the attention kernel, some 100 kB however large the batch, is not counted
    assert memory.total - predicted_weights == pytest.approx(peak, rel=0.05, abs=1.3e5)


def test_a_lowered_round_allocates_what_is_alive_at_once(reference: Models) -> None:
    """To 1 %, by the interpreter and as a graph; side by side its buffers would take far more."""
    models, shapes = reference
    plan = run_passes(probe("bush 8 by draft", greedy=False))
    requests = requests_for(plan, models, 4, 60, 40)
    for executable in (EagerBackend().compile(plan, models), StaticExecutable(plan, models)):
        longest, peak = peak_of_second_round(executable, requests)
        slots = longest + speculative_slots(plan) + 1
        buffers = round_buffers(round_types(plan, plan.rounds[0]).steps, shapes, 4, slots)
        assert round_peak(buffers).total == pytest.approx(peak, rel=0.01)
        assert peak < 0.6 * sum(buffer.size for buffer in buffers)


def test_each_logits_of_a_chain_take_the_place_of_those_before() -> None:
    plan, row = run_passes(plan_of("draft_chain")), 32000 * 4
    buffers = round_buffers(round_types(plan, plan.rounds[0]).steps, SHAPES, 2, 100)
    sizes = [
        [buffer.size for buffer in buffers if buffer.name.startswith(kind)]
        for kind in ("rows", "laws", "judging")
    ]
    assert sizes[0] == [2 * row] * 4 + [2 * 5 * row]
    assert sizes[1] == [2 * count * row for count in (1, 2, 3, 4)]
    assert sizes[2] == [4 * 2 * 5 * row]
    # at the end: probabilities of four nodes, logits of five, and four copies of these
    assert round_peak(buffers).total == (4 + 5 + 4 * 5) * 2 * row


FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2Config": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256},
    "OPTConfig": {"ffn_dim": 160, "word_embed_proj_dim": 64, "pad_token_id": 1},
    "MistralConfig": {"intermediate_size": 160, "num_key_value_heads": 2, "sliding_window": 32},
    "Qwen3Config": {"intermediate_size": 96, "num_key_value_heads": 1, "head_dim": 32},
    "LlamaConfig": {"intermediate_size": 160, "num_key_value_heads": 4},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_allocate_what_was_predicted(family: str, tmp_path: Path) -> None:
    """Tiny models in float32: even the workspace alone is within 5 %."""
    shared = {"vocab_size": 499, "bos_token_id": None, "eos_token_id": None}
    if family != "GPT2Config":
        shared |= {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
        shared |= {"max_position_embeddings": 256}
    config = getattr(transformers, family)(**shared, **FAMILIES[family])
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    model = load_model(tmp_path, dtype="float32")
    form = ModelShape.from_folder(tmp_path, dtype="float32")
    assert form.weight_bytes == pytest.approx(weights_of([model]), rel=1e-3)
    for plan in (plain_plan(True), probe_of_width("draft", 6, greedy=False).plan):
        models, shapes = {"target": model, "draft": model}, {"target": form, "draft": form}
        caches, peak = peak_of_rounds(plan, models, 4, 100, 20, 2)
        memory = plan_memory(plan, shapes, 4, 120, 100)
        parts = {part.name: part.bytes for part in memory.parts}
        workspace = parts["activations"] + parts["logits and laws"]
        assert workspace == pytest.approx(peak - caches, rel=0.05)


LLAMA = shape("llama-2-7b")
DRAFT = ModelShape.from_config(llama(2048, 4, 16, 16, 5632, 32000), name="draft")
SHAPES = {"target": LLAMA, "draft": DRAFT}
CHAIN = probe("chain 7 by draft")


def test_caches_by_kind_of_layer() -> None:
    """Llama-2-7B holds 524288 bytes per token (formulas.md 10.1); DeepSeek-V3 576 elements."""
    assert cache_bytes(LLAMA, 100) == 100 * 524288
    latent = layered(DEEPSEEK_LATENT, DenseMlp(100), layers=61)
    per_token = 61 * (512 + 64) * latent.kv_format.bytes_per_element
    assert cache_bytes(latent, 10) == 10 * per_token
    assert cache_bytes(latent, 10, runtime=Runtime(devices=8)) == 80 * per_token
    grouped = shape("llama-3-8b")
    assert cache_bytes(grouped, 10, runtime=Runtime(devices=8)) == cache_bytes(grouped, 10)
    assert cache_bytes(grouped, 10, runtime=Runtime(devices=16)) == 2 * cache_bytes(grouped, 10)
    halves = replace(LLAMA, kv_format=number_format("fp8"))
    assert cache_bytes(halves, 100) == 50 * 524288


def test_windows_are_kept_alone_where_the_runtime_does() -> None:
    config = CONFIGS["qwen2-7b"] | {
        "use_sliding_window": True,
        "sliding_window": 1024,
        "max_window_layers": 8,
    }
    windowed = ModelShape.from_config(config)
    whole, window = windowed.layer_windows.count(None), 1024
    assert set(windowed.layer_windows) == {None, window} and whole == 8
    every, windows_alone = (
        cache_bytes(windowed, 8000, 9, Runtime(windowed_caches=keeps)) for keeps in (False, True)
    )
    share = (whole * 8000 + (windowed.num_layers - whole) * (window + 9)) / (
        windowed.num_layers * 8000
    )
    assert windows_alone == pytest.approx(share * every)
    assert cache_bytes(windowed, 500, 9, Runtime(windowed_caches=True)) == cache_bytes(
        windowed, 500
    )


def test_accelerators_keep_some_for_themselves() -> None:
    plain = plan_memory(CHAIN, SHAPES, 2, 300)
    runtime = runtime_of(load_device("4xh100-sxm"))
    assert runtime.devices == 4 and runtime.reserve_bytes > 5e8 and runtime.graph_bytes > 0
    parts = {p.name: p.bytes for p in plan_memory(CHAIN, SHAPES, 2, 300, runtime=runtime).parts}
    assert parts["framework reserve"] == 4 * runtime.reserve_bytes
    assert parts["graph buffers"] == 4 * runtime.graph_bytes
    assert parts["weights of target"] == LLAMA.weight_bytes
    assert runtime_of(load_device("cpu-generic")) == Runtime()
    assert {part.name for part in plain.parts}.isdisjoint({"framework reserve", "graph buffers"})


@given(limit=st.integers(0, 10**6))
def test_the_largest_that_fits(limit: int) -> None:
    assert largest(lambda number: number <= limit) == limit


@given(memory=st.floats(16e9, 200e9), text=st.integers(10, 4000))
@settings(max_examples=25)
def test_the_largest_batch_fits_and_one_more_does_not(memory: float, text: int) -> None:
    batch = largest_batch(CHAIN, SHAPES, memory, text)
    assert plan_memory(CHAIN, SHAPES, batch + 1, text).total > memory
    assert batch == 0 or plan_memory(CHAIN, SHAPES, batch, text).total <= memory


@given(memory=st.floats(3e9, 60e9), batch=st.integers(1, 64), text=st.integers(100, 4000))
@settings(max_examples=40)
def test_remedies_do_what_they_say(memory: float, batch: int, text: int) -> None:
    need = Need(CHAIN, SHAPES, batch, text, text // 2)
    now = need.memory.total
    offered = remedies(need, memory)
    assert offered and all(0 < one.saves < now for one in offered)
    for one in offered:
        if "devices" not in one.words:
            assert one.enough == (now - one.saves <= memory)
    costs = [one.cost for one in offered if one.enough]
    assert costs == sorted(costs) and [one.enough for one in offered] == sorted(
        (one.enough for one in offered), reverse=True
    )
    fp8 = {role: replace(form, kv_format=number_format("fp8")) for role, form in SHAPES.items()}
    caches = next(one for one in offered if one.words.startswith("caches in fp8"))
    assert caches.saves == pytest.approx(now - replace(need, shapes=fp8).memory.total)


def test_the_cheapest_remedy_is_the_smallest_change() -> None:
    many = Need(CHAIN, SHAPES, 32, 2048, 1024)
    slightly = remedies(many, many.memory.total * 0.99)[0]
    assert slightly.words.startswith(("batch 31", "texts of 20")) and slightly.enough
    half = remedies(many, many.memory.total * 0.75)[0]
    assert half.words == "caches in fp8 (kv_format: fp8)"
    hopeless = remedies(Need(CHAIN, SHAPES, 1, 64, 32), 1e9)
    assert [one.words for one in hopeless if one.enough] == [hopeless[0].words]
    assert "devices sharing each layer" in hopeless[0].words
    assert hopeless[1].words == "weights in 4 bits (weight_format: int4)"


def test_more_devices_are_such_as_can_share_the_layers() -> None:
    """64 query heads in 8 groups: three devices would hold it, four can split it."""
    model = ModelShape.from_config(llama(5120, 64, 64, 8, 25600, 151936))
    need = Need(CHAIN, {"target": model, "draft": model}, 1, 2048, 1024)
    total = need.memory.total

    def shared(part: float, **options: bool) -> list[str]:
        return [
            one.words for one in remedies(need, total * part, **options) if "devices" in one.words
        ]

    assert not splits_evenly(model, 3) and splits_evenly(model, 4)
    assert shared(0.4) == ["4 of these devices sharing each layer"]
    assert shared(0.4, more_devices=False) == []
    assert shared(0.004) == []  # more than can split the heads


def test_shorter_texts_keep_their_prompts() -> None:
    need = Need(CHAIN, SHAPES, 8, 1536, 1024)
    (words,) = [one.words for one in remedies(need, 1e9) if "texts" in one.words]
    assert words == "texts of 1025 tokens instead of 1536"


def test_greedy_plans_hold_no_laws() -> None:
    trees = {
        greedy: {part.name: part.bytes for part in plan_memory(plan, SHAPES, 1, 300, 2).parts}
        for greedy, plan in (
            (True, probe("bush 4 by draft")),
            (False, probe("bush 4 by draft", greedy=False)),
        )
    }
    row = 32000 * 4
    # logits of 9 nodes twice while they are cast; sampled: 4 copies of 9 rows, and laws of 5
    assert trees[True]["logits and laws"] == 9 * row * 1.5
    assert trees[False]["logits and laws"] == (9 + 4 * 9 + 5) * row


def test_reduced_views_take_their_budget() -> None:
    text = text_of("self_draft_view")
    parts = {p.name: p.bytes for p in plan_memory(parse_plan(text), SHAPES, 1, 2000).parts}
    beside = 5 + 1 + 1  # the root and four drafted tokens, dead writes, one token taken in
    assert parts["cache @part"] == (512 + beside) * 524288
    whole = parse_plan(text.replace(" policy=sink_recent(sink=16) budget=512", ""))
    assert "cache @part" not in {p.name for p in plan_memory(whole, SHAPES, 1, 2000).parts}
    asked = text.replace("sink_recent(sink=16)", "retrieved(chunk=8)")
    queries = {p.name: p.bytes for p in plan_memory(parse_plan(asked), SHAPES, 3, 2000).parts}
    assert queries["choices of @part"] == 3 * 32 * 32 * 128 * 2  # a half of a token's cache
    assert "choices of @part" not in parts
