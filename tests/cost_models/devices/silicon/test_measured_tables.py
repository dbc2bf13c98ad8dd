"""The package's own tables: known rows, sizes left out, and the profiles of another project."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from specplan.cost_models.devices.silicon.attention import AttentionSize
from specplan.cost_models.devices.silicon.device import ELSEWHERE_ERROR, SHEET_OF_SYSTEM
from specplan.cost_models.devices.silicon.experts import Family
from specplan.cost_models.devices.silicon.package import list_systems, systems_folder
from specplan.cost_models.devices.silicon.tables import KernelTables

pytestmark = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None or find_spec("pyarrow") is None,
    reason="needs the extra: pip install 'specplan[silicon]'",
)


@pytest.fixture(scope="module")
def tables():
    """Tables by system and stack, each read once."""
    loaded: dict[str, KernelTables] = {}

    def of(name: str) -> KernelTables:
        if name not in loaded:
            loaded[name] = KernelTables.of(systems_folder(), *name.split("/"))
        return loaded[name]

    return of


@pytest.mark.parametrize(
    ("m", "n", "k", "milliseconds"),
    [
        (1, 65536, 4096, 0.218),
        (2, 65536, 4096, 0.185),
        (64, 65536, 4096, 0.228),
        (96, 65536, 4096, 0.190),
        (2, 8192, 8192, 0.046),
        (32, 8192, 8192, 0.046),
        (128, 8192, 8192, 0.049),
        (256, 8192, 8192, 0.051),
        (512, 8192, 8192, 0.087),
        (1, 4096, 4096, 0.015),
    ],
)
def test_rows_of_h100_under_vllm(tables, m, n, k, milliseconds):
    """Bfloat16 rows as they were read from vLLM 0.24.0's file by another script (2026-08)."""
    products = tables("h100_sxm/vllm").products("bfloat16")
    seconds, reading = products.seconds(m, n, k)
    assert seconds * 1e3 == pytest.approx(milliseconds, abs=0.001)
    assert not reading.outside


def test_every_system_with_a_sheet_has_products_attention_and_reductions(tables):
    for name in list_systems(systems_folder()):
        if name.split("/")[0] not in SHEET_OF_SYSTEM:
            continue
        system = tables(name)
        seconds, reading = system.products("bfloat16").seconds(8, 4096, 4096)
        assert 2e-6 < seconds < 100e-6, name
        assert 0.0 < reading.error < 0.6, name
        decode = AttentionSize(8, 1, 2048, 32, 8, 128, "bfloat16")
        seconds, reading = system.attention().seconds(decode)
        assert 2e-6 < seconds < 300e-6, name
        assert not reading.outside, name
        seconds, _ = system.reduction().seconds(2, 1e6)
        assert 2e-6 < seconds < 200e-6, name


def test_formats_timed_with_their_host_are_left_out(tables):
    """VLLM's kernels of fp8 in blocks were not captured in graphs: 55 us and more each."""
    assert tables("h100_sxm/vllm").products("fp8_block") is None
    assert tables("h100_sxm/sglang").products("fp8_block") is not None


@pytest.mark.parametrize(
    ("name", "form", "mean"),
    [
        ("a100_sxm/vllm", "bfloat16", 0.08),
        ("h100_sxm/vllm", "bfloat16", 0.06),
        ("h100_sxm/trtllm", "fp8", 0.03),
        ("b200_sxm/vllm", "bfloat16", 0.06),
    ],
)
def test_widths_left_out_of_the_grid_are_predicted_by_their_neighbours(tables, name, form, mean):
    """Every inner n from n's two neighbours, on sizes of language models (k >= 512)."""
    grid = tables(name).products(form).grid
    m, n, k = (np.exp(axis) for axis in grid.axes)
    sizes = (n >= 512) & (n <= 16384)
    errors = grid.left_out(1)[m <= 2048][:, sizes][:, :, (k >= 512) & (k <= 16384)]
    assert np.isfinite(errors).all()
    assert errors.mean() <= mean


@pytest.mark.parametrize("name", ["h100_sxm/vllm", "h100_sxm/trtllm", "a100_sxm/vllm"])
def test_experts_of_mixtral_read_more_weights_with_more_tokens(tables, name):
    """From 1 to 8 tokens, 2 to 7.2 of 8 experts: the time grows about as much."""
    experts, mixtral = tables(name).experts("bfloat16"), Family(4096, 14336, 2, 8)
    one, _ = experts.seconds(mixtral, 1)
    eight, _ = experts.seconds(mixtral, 8)
    assert 2.5 < eight / one < 4.5


@pytest.mark.shared
@pytest.mark.parametrize(("hardware", "system"), [("A100", "a100_sxm"), ("H100", "h100_sxm")])
@pytest.mark.parametrize("stack", ["vllm", "sglang", "trtllm"])
def test_profiles_of_vidur_are_met_without_calibration(tables, shared, hardware, system, stack):
    """Other machines, another year's software: Llama-2-7B's products, per op, tp 1, 2 and 4."""
    rows = json.loads((shared / "data" / "published_dev.json").read_text())
    products = tables(f"{system}/{stack}").products("bfloat16")
    errors, covered = [], []
    for row in rows:
        if row["metric"] != "layer_gemm_time" or row["hardware"] != hardware:
            continue
        parts, tokens = row["setting"]["tp"], row["setting"]["num_tokens"]
        sizes = {
            "attn_pre_proj": (4096, 3 * 4096 // parts),
            "attn_post_proj": (4096 // parts, 4096),
            "mlp_up_proj": (4096, 2 * 11008 // parts),
            "mlp_down_proj": (11008 // parts, 4096),
        }
        for name, microseconds in json.loads(row["note"])["per_op"].items():
            inputs, outputs = sizes[name]
            seconds, reading = products.seconds(tokens, outputs, inputs)
            errors.append(seconds / (microseconds * 1e-6) - 1.0)
            covered.append(abs(errors[-1]) <= np.hypot(reading.error, ELSEWHERE_ERROR))
    assert len(errors) == 132
    assert np.mean(np.abs(errors)) <= 0.11
    assert np.mean(covered) >= 0.8
