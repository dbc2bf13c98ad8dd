"""The GPU benchmarks: what of them needs no GPU, at tiny sizes on the CPU."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

CPU = torch.device("cpu")
WAYS = ("torch ops", "kernels")
SIZES: dict[str, Any] = dict(
    hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=96, vocab_size=97, max_position_embeddings=512, initializer_range=0.3,
)  # fmt: skip


@pytest.fixture(autouse=True)
def scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU")
@pytest.mark.parametrize("what", [(), ("tensorrt",)])
def test_without_a_gpu_the_script_says_so(what: tuple[str, ...], repository: Path) -> None:
    command = ["bash", str(repository / "benchmarks/gpu.sh"), *what]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("There is no NVIDIA GPU here")


def test_contenders_compute_the_same_attention() -> None:
    attention = importlib.import_module("gpu_attention")
    case, heads = attention.Case(2, 40, 9), attention.Heads(4, 2, 16)
    inputs = attention.Inputs(case, heads, CPU, torch.float32)
    row = attention.measure(inputs, 1e9, ("specplan", "sdpa", "flex", "flashinfer"))
    assert set(row["seconds"]) == {"specplan", "sdpa", "flex"}
    assert set(row["errors"]) == {"flashinfer"}
    assert max(row["difference"].values()) < 1e-5
    assert row["floor_seconds"] == pytest.approx(2 * 2 * 2 * 49 * 16 * 4 / 1e9)
    assert "flashinfer: ModuleNotFoundError" in attention.table([row])


def test_every_case_of_the_goal_is_measured() -> None:
    attention = importlib.import_module("gpu_attention")
    cases = list(attention.cases())
    assert len(set(cases)) == len(cases)
    for field, ends in (("batch", (1, 64)), ("context", (1024, 65536)), ("tree", (1, 128))):
        values = [getattr(case, field) for case in cases]
        assert (min(values), max(values)) == ends


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark of rounds, of a tiny target and head."""
    module = importlib.import_module("gpu_round")
    head = module.eagle3_config({**SIZES, "rms_norm_eps": 1e-5}, "target")
    monkeypatch.setattr(module, "HEAD", head)
    monkeypatch.setattr(module, "READ", (1, 2, 3))
    return module


@pytest.mark.parametrize("name", ["chain", "head_chain"])
def test_a_tiny_round_is_measured_in_every_way(name: str, rounds: Any, tmp_path: Path) -> None:
    """On a CPU nothing is captured."""
    models = {
        role: rounds.random_model(SIZES, role, CPU, torch.float32) for role in ("target", "draft")
    }
    models["head"] = rounds.random_head(models["target"], [*range(9)])
    plan = rounds.PLANS[name](2)
    given = {one.name: models[one.name] for one in plan.models}
    every, load = [f"{ops}{how}" for ops in WAYS for how in ("", ", captured")], rounds.Load(2, 20)
    assert set(rounds.ways(plan, given, rounds.LOADS[0], tmp_path, False)) == set(every)
    row = rounds.measure(plan, given, load, tmp_path, 1)
    assert set(row["seconds"]) == set(every[1::2])
    assert all(row["tokens_alike"].values()) and not row["errors"]
    rounds.completed(row, 1e6, None, 1e9)
    assert row["floor_seconds"] == pytest.approx(1e-3)
    assert len(rounds.lines_of(row).splitlines()) == 3


def test_the_floor_of_the_real_round() -> None:
    rounds = importlib.import_module("gpu_round")
    shapes, plan, cell = rounds.shapes_of(), rounds.chain(4), (1, 1000)
    size, predicted = rounds.floor_and_price(plan, shapes, *cell, "NVIDIA H200")
    # Llama 3 8B without its embeddings, and four passes of the 1B's 1.24e9, at two bytes
    assert size == pytest.approx(2 * (7.5e9 + 4 * 1.24e9), rel=0.03)
    assert size / 4.8e12 < predicted < 3 * size / 4.8e12
    assert rounds.floor_and_price(plan, shapes, *cell, "some other")[1] is None
    size, predicted = rounds.floor_and_price(rounds.head_chain(4), shapes, *cell, "NVIDIA H200")
    # four passes of a layer that reads states and tokens, of what joins three, and of 32,000 rows
    head = 2 * 4096**2 + 2 * 2 * 4096 * 1024 + 4096**2 + 3 * 4096 * 14336 + 4096 * 32000
    assert size == pytest.approx(2 * (7.5e9 + 4 * head + 3 * 4096**2), rel=0.03)
    assert predicted > size / 4.8e12


def test_a_tiny_head_is_trained(rounds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    training = importlib.import_module("gpu_training")
    for name in ("HEAD", "READ"):
        monkeypatch.setattr(training, name, getattr(rounds, name))
    monkeypatch.setattr(training, "LLAMA_8B", SIZES)
    recipe = training.Recipe(rows=2, row_tokens=24, unroll=2)
    row = training.measured(CPU, 24, 8, recipe)
    assert row["losses"][1] < row["losses"][0]
    assert row["tokens_per_second"] == pytest.approx(2 * 24 / row["seconds_per_step"])


def test_a_step_of_training_is_predicted() -> None:
    training = importlib.import_module("gpu_training")
    h100 = training.device_called("NVIDIA H100 80GB HBM3")
    one, two = (training.predicted(h100, texts, 512, 7) for texts in (8, 16))
    assert two == pytest.approx(2 * one) and training.predicted(None, 8, 512, 7) is None
    assert one > 8 * 512 * 2 * 7.5e9 / 990e12  # the target's operations


def test_predictions_are_those_of_the_device_it_runs_on() -> None:
    attention = importlib.import_module("gpu_attention")
    case = attention.Case(8, 8192, 16)
    h100, h200 = (attention.predicted_seconds(case, f"NVIDIA {it}") for it in ("H100 PCIe", "H200"))
    assert h100 > h200 > 2 * 8 * 8 * 8192 * 128 * 2 / 4.8e12  # its keys and values
    assert attention.predicted_seconds(case, "some other") is None


def test_bandwidth_is_read_and_written_bytes() -> None:
    timing = importlib.import_module("gpu_timing")
    assert timing.copy_bandwidth(CPU, 1 << 20) > 0
