"""Stacks, and devices of several: names, arrays, the host's time, published steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.devices.device import list_devices, load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.devices.stack import (
    DEFAULT,
    ENGINE_STACKS,
    IDEAL,
    Stack,
    list_stacks,
    load_stack,
    stack_of,
)
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import llama, shape

MODEL = shape("llama-3-8b", "bfloat16")
MIXTRAL = {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}


def test_shipped_stacks_load_and_cite_every_figure() -> None:
    assert set(list_stacks()) >= {
        "graph", "gpt-fast", "magicdec", "tensorrt-llm", "transformers-eager", "vllm"
    }  # fmt: skip
    for name in list_stacks():
        stack = load_stack(name)
        assert stack.name == name
        assert stack.sources and all(len(source) > 9 for source in stack.sources.values())


def test_stack_files_refuse_what_they_cannot_read() -> None:
    with pytest.raises(UsageError, match="unknown key 'speed'"):
        Stack.from_yaml("schema_version: 1\nspeed: {value: 1, source: a}")
    with pytest.raises(UsageError, match="one number"):
        Stack.from_yaml("schema_version: 1\nkernels_per_layer: {value: {a: 1}, source: a}")
    with pytest.raises(UsageError, match="Known stacks"):
        load_device("h200@abacus")


def test_names_of_devices_count_and_choose_a_stack(tmp_path: Path) -> None:
    one, eight = load_device("h100-sxm"), load_device("8xh100-sxm@vllm")
    assert isinstance(one, AnalyticDevice) and isinstance(eight, AnalyticDevice)
    assert (one.name, one.count, one.stack.name) == ("h100-sxm", 1, DEFAULT)
    assert (eight.name, eight.count, eight.stack.name) == ("8xh100-sxm@vllm", 8, "vllm")
    assert eight.memory_bytes == 8 * one.memory_bytes
    assert eight.memory_bandwidth == one.memory_bandwidth
    assert load_device("1xh100-sxm").name == "h100-sxm"
    with pytest.raises(UsageError, match="share layers"):
        load_device("2xcpu-generic")
    with pytest.raises(UsageError, match="the number of devices must be at least 1"):
        load_device("0xh100-sxm")
    path = tmp_path / "mine@home.yaml"
    path.write_text((Path(__file__).parents[3] / "cost_models/devices/sheets/a40.yaml").read_text())
    assert load_device(path).name == "a40"
    assert load_device(f"2x{path}@vllm").name == "2xa40@vllm"


@pytest.mark.parametrize("stack", list_stacks())
def test_acceptance_of_any_draft_takes_the_seconds_of_the_stack(stack: str) -> None:
    """One draft token is verified like more of them; plain decoding accepts none."""
    device = load_device(f"h100-sxm@{stack}")
    assert isinstance(device, AnalyticDevice)
    plain, one, six = (device.op_seconds("accept:greedy", 1, width).median for width in (0, 1, 6))
    assert plain == device.seconds_per_launch
    assert one == six == device.stack.acceptance_seconds > plain


def test_an_engine_brings_its_stack() -> None:
    """Where the device names no stack, that of the backend launches the kernels."""
    assert {name: stack_of(name) for name in ("vllm@0.32", "ray_serve", "sglang", "eager")} == {
        "vllm@0.32": "vllm", "ray_serve": "vllm", "sglang": "sglang", "eager": DEFAULT
    }  # fmt: skip
    for engine, stack in ENGINE_STACKS.items():
        device = load_device("8xh200", engine)
        assert isinstance(device, AnalyticDevice) and device.stack.name == stack
        assert "median error" in device.basis([]) and "runs to 20" in device.basis([])
        step = device.round_seconds(1).median + device.stack.seconds_per_forward
        assert step > 0.0 and device.stack.acceptance_seconds < 2e-3
    assert load_device("8xh200@graph", "vllm").name == "8xh200@graph"


def test_steps_beyond_the_captured_graphs_wait_for_the_host() -> None:
    device = load_device("b200", "sglang")
    assert isinstance(device, AnalyticDevice)
    slow = replace(device, stack=replace(device.stack, dispatch_seconds=1e-3))
    for tokens, waits in ((512, False), (513, True)):
        seconds = slow.forward_seconds(MODEL, tokens, 1, 100).median
        assert (seconds > 2 * device.forward_seconds(MODEL, tokens, 1, 100).median) is waits


def test_mixtures_of_experts_launch_kernels_of_their_own() -> None:
    """Per layer with experts, `kernels_per_mixture` small kernels; none in dense models."""
    experts = ModelShape.from_config(MIXTRAL)
    for model, mixtures in ((experts, 32), (MODEL, 0)):
        times = []
        for count in (0.0, 10.0):
            device = load_device("h100-sxm", "sglang")
            assert isinstance(device, AnalyticDevice)
            stack = replace(device.stack, kernels_per_mixture=count)
            one = replace(device, stack=stack)
            times.append(one.forward_seconds(model, 1, 1, 100).median)
        more = 10 * mixtures * device.seconds_per_small_kernel
        assert times[1] - times[0] == pytest.approx(more, abs=1e-12)


def test_acceptance_in_a_graph_takes_less_than_in_python() -> None:
    graph, python = load_stack(DEFAULT), load_stack("magicdec")
    assert graph.acceptance_seconds < 0.3 * python.acceptance_seconds
    assert python.acceptance_seconds == 1.35e-3  # median residual of arXiv 2408.11049


@pytest.mark.parametrize("name", list_devices())
def test_arrays_are_scalars_on_every_device(name: str) -> None:
    batch, context = np.array([[1], [7], [64]]), np.array([0.0, 300.5, 9000.0])
    for stack in list_stacks():
        device = load_device(f"{name}@{stack}")
        assert isinstance(device, AnalyticDevice)
        if "bfloat16" not in device.peak_flops:  # a Turing GPU
            continue
        seconds = device.forward_seconds(MODEL, batch, 5, context)
        assert seconds.extrapolated is False
        for i, b in enumerate(batch[:, 0]):
            for j, c in enumerate(context):
                alone = device.forward_seconds(MODEL, int(b), 5, float(c))
                assert isinstance(alone.median, float)
                assert seconds.median[i, j] == pytest.approx(alone.median, rel=1e-9)
                assert seconds.low[i, j] == pytest.approx(alone.low, rel=1e-9)
                assert seconds.high[i, j] == pytest.approx(alone.high, rel=1e-9)


@given(
    batch=st.integers(1, 300),
    tokens=st.integers(1, 64),
    context=st.integers(0, 20000),
    more=st.integers(1, 300),
    count=st.sampled_from([1, 2, 8]),
    stack=st.sampled_from(list_stacks()),
)
@settings(max_examples=60)
def test_more_work_is_never_cheaper(
    batch: int, tokens: int, context: int, more: int, count: int, stack: str
) -> None:
    device = load_device(f"{count}xh100-sxm@{stack}")
    base = device.forward_seconds(MODEL, batch, tokens, context).median * (1 - 1e-12)
    assert device.forward_seconds(MODEL, batch + more, tokens, context).median >= base
    assert device.forward_seconds(MODEL, batch, tokens + more, context).median >= base
    assert device.forward_seconds(MODEL, batch, tokens, context + more).median >= base


def test_several_devices_are_faster_by_less_than_their_number() -> None:
    for batch, tokens in ((1, 1), (64, 8)):
        times = [
            load_device(f"{count}xa100-sxm-80gb").forward_seconds(MODEL, batch, tokens, 4000).median
            for count in (1, 2, 4, 8)
        ]
        for fewer, more in pairwise(times):
            assert fewer / 2 < more < fewer


def test_eager_host_is_slower_than_the_device() -> None:
    """Plain steps of eager transformers on an A100: 24.2, 31.3, 53.2 ms (arXiv 2402.12374).

    gpt-fast takes 9.53 ms for the first (1 / 104.9 tokens/s).
    """
    eager, graph = load_device("a100-sxm-80gb@transformers-eager"), load_device("a100-sxm-80gb")
    small = shape("llama-2-7b")
    assert eager.forward_seconds(small, 1, 1, 128).median == pytest.approx(24.2e-3, rel=0.03)
    assert graph.forward_seconds(small, 1, 1, 128).median == pytest.approx(9.53e-3, rel=0.06)
    for figures, seconds in (
        ((5120, 40, 40, 40, 13824, 32000), 31.3e-3),
        ((6656, 60, 52, 52, 17920, 32000), 53.2e-3),
    ):
        model = type(small).from_config(llama(*figures), name="larger")
        assert eager.forward_seconds(model, 1, 1, 128).median == pytest.approx(seconds, rel=0.15)
    # a prompt keeps the device busy for longer than the host takes to launch it
    long = [device.prefill_seconds(small, 4, 2048).median for device in (eager, graph)]
    assert long[0] < 1.3 * long[1]


def test_a_stack_that_costs_nothing_is_the_roofline() -> None:
    ideal = AnalyticDevice("ideal", 80e9, 2.039e12, {"float16": 312e12}, stack=IDEAL)
    step = ideal.forward_seconds(shape("llama-2-7b"), 1, 1, 512)
    assert step.low == step.median == step.high == pytest.approx(6.615e-3, abs=5e-7)
