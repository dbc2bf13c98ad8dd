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
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=96, vocab_size=97, max_position_embeddings=512, initializer_range=0.3,
)  # fmt: skip


@pytest.fixture(autouse=True)
def scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU")
def test_without_a_gpu_the_script_says_so(repository: Path) -> None:
    done = subprocess.run(
        ["bash", str(repository / "benchmarks/gpu.sh")], capture_output=True, text=True, check=True
    )
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


def test_a_tiny_round_is_measured_in_every_way(tmp_path: Path) -> None:
    """On a CPU nothing is captured."""
    rounds = importlib.import_module("gpu_round")
    models = {
        name: rounds.random_model(SIZES, name, CPU, torch.float32) for name in ("target", "draft")
    }
    row = rounds.measure(rounds.chain(2), models, rounds.Load(2, 20), tmp_path, 1)
    assert set(row["seconds"]) == {f"{ops}{how}" for ops in WAYS for how in ("", ", captured")}
    assert all(row["tokens_alike"].values()) and not row["errors"]
    rounds.completed(row, 1e6, None, 1e9)
    assert row["floor_seconds"] == pytest.approx(1e-3)
    assert len(rounds.lines_of(row).splitlines()) == 5


def test_the_floor_of_the_real_round() -> None:
    rounds = importlib.import_module("gpu_round")
    sizes = {"target": rounds.LLAMA_8B, "draft": rounds.DRAFT}
    size, predicted = rounds.floor_and_price(rounds.chain(4), sizes, 1, 1000, "NVIDIA H200")
    # Llama 3 8B without its embeddings, and four passes of the 1B's 1.24e9, at two bytes
    assert size == pytest.approx(2 * (7.5e9 + 4 * 1.24e9), rel=0.03)
    assert size / 4.8e12 < predicted < 3 * size / 4.8e12
    assert rounds.floor_and_price(rounds.chain(4), sizes, 1, 1000, "some other")[1] is None


def test_predictions_are_those_of_the_device_it_runs_on() -> None:
    attention = importlib.import_module("gpu_attention")
    case = attention.Case(8, 8192, 16)
    h100, h200 = (attention.predicted_seconds(case, f"NVIDIA {it}") for it in ("H100 PCIe", "H200"))
    assert h100 > h200 > 2 * 8 * 8 * 8192 * 128 * 2 / 4.8e12  # its keys and values
    assert attention.predicted_seconds(case, "some other") is None


def test_bandwidth_is_read_and_written_bytes() -> None:
    timing = importlib.import_module("gpu_timing")
    assert timing.copy_bandwidth(CPU, 1 << 20) > 0
