"""The device of kernel tables: measured ops exchanged, all else from the data sheet."""

from __future__ import annotations

from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.devices.device import is_device_name, load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.devices.silicon import package
from specplan.cost_models.devices.silicon.attention import Attention
from specplan.cost_models.devices.silicon.collectives import Reduction
from specplan.cost_models.devices.silicon.device import SHEET_OF_SYSTEM, SiliconDevice
from specplan.cost_models.devices.silicon.experts import Experts
from specplan.cost_models.devices.silicon.products import Products
from specplan.cost_models.devices.silicon.readings import table_formats
from specplan.cost_models.devices.silicon.tables import KernelTables
from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.layers import ExpertMlp
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import NumberFormat, number_format
from specplan.ir.errors import MissingCapabilityError, UsageError
from tests.cost_models.devices.silicon import synthetic
from tests.cost_models.devices.silicon.test_package import SHEET, VERSIONS, write
from tests.cost_models.models.public_shapes import shape as public_shape


class SyntheticTables(KernelTables):
    """Tables that were never in a file."""

    def products(self, form: str) -> Products | None:
        return self._once(
            ("gemm", form), lambda: Products.of(self.sheet, synthetic.products_table(), form)
        )

    def experts(self, form: str) -> Experts | None:
        return self._once(
            ("moe", form), lambda: Experts.of(self.sheet, synthetic.experts_table(), form)
        )

    def attention(self) -> Attention | None:
        tables = {"decode": synthetic.decode_table(), "prompt": synthetic.prompt_table()}
        return self._once(("attention", ""), lambda: Attention.of(self.sheet, tables))

    def reduction(self) -> Reduction | None:
        return self._once(
            ("comm", ""), lambda: Reduction.of(self.sheet, synthetic.reduction_table())
        )


def silicon(count: int = 1) -> SiliconDevice:
    fallback = load_device("h100-sxm")
    assert isinstance(fallback, AnalyticDevice)
    tables = SyntheticTables(Path(), "h100_sxm", "test", synthetic.SHEET)
    return SiliconDevice("silicon:h100_sxm/test", tables, fallback.times(count))


def expected_seconds(count: int, shape, batch: int, tokens: int, context: int) -> float:
    """By the law of the tables; what they lack by the fallback's own formulas."""
    fallback = silicon(count).fallback
    whole = fallback.forward_seconds(shape, batch, tokens, context).median
    layer = shape.layers[0].attention
    for op in forward_ops(shape, batch, tokens, context, tensor_parallel=count):
        if op.name == "all_gather":
            continue
        if op.matrix is not None:
            seconds = synthetic.product_seconds(op.matrix.rows, op.matrix.outputs, op.matrix.inputs)
        elif op.name == "attention":
            heads, kv_heads = layer.num_heads // count, layer.num_kv_heads // count
            seconds = synthetic.attention_seconds(
                batch, heads, kv_heads, layer.head_dim, tokens, context
            )
        else:
            seconds = 5e-6 + op.cost.link_bytes / (0.7 * 450e9)
        whole += op.count * (seconds - fallback.kernels.seconds(op))
    return whole


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("batch", "tokens", "context"), [(1, 1, 1000), (8, 1, 3000), (4, 5, 2000), (2, 1024, 0)]
)
def test_measured_ops_are_exchanged_and_nothing_else(count, batch, tokens, context):
    shape = public_shape("llama-3-8b")
    seconds = silicon(count).forward_seconds(shape, batch, tokens, context)
    expected = expected_seconds(count, shape, batch, tokens, context)
    assert seconds.median == pytest.approx(expected, rel=0.05)
    assert 0.0 < seconds.low < seconds.median < seconds.high
    assert not seconds.extrapolated


def mixture(active: int = 2, gated: bool = True) -> ModelShape:
    """Llama 3 8B with the experts of Mixtral 8x7B."""
    dense = public_shape("llama-3-8b")
    mlp = ExpertMlp(num_experts=8, active_experts=active, intermediate_size=14336, gated=gated)
    return replace(dense, layers=tuple(replace(layer, mlp=mlp) for layer in dense.layers))


@pytest.mark.parametrize(("count", "tokens"), [(1, 1), (1, 8), (2, 64)])
def test_one_kernel_does_both_products_of_the_experts(count, tokens):
    device, shape = silicon(count), mixture()
    parts = {part.name: part for part in device._parts(shape, 1, tokens, 1000, None, None)}
    price = parts["expert_up and expert_down"].price
    assert price is not None
    expected = synthetic.expert_seconds(tokens, 4096, 14336 / count, 2, 8)
    assert price[0] == pytest.approx(expected, rel=0.05)
    assert parts["router"].price is None  # 8 outputs: narrower than all that was measured
    ops = forward_ops(shape, 1, tokens, 1000, tensor_parallel=count)
    fallback = device.fallback
    computed = sum(
        op.count * fallback.kernels.seconds(op) for op in ops if op.name.startswith("expert_")
    )
    dense = [part for name, part in parts.items() if part.price and "expert" not in name]
    exchanged = sum(
        part.ops[0].count * (part.price[0] - fallback.kernels.seconds(part.ops[0]))
        for part in dense
    )
    whole = fallback.forward_seconds(shape, 1, tokens, 1000).median
    seconds = device.forward_seconds(shape, 1, tokens, 1000).median
    assert seconds == pytest.approx(whole - computed + exchanged + 32 * price[0], rel=1e-6)


def test_experts_that_are_not_gated_are_computed():
    parts = [part.name for part in silicon()._parts(mixture(gated=False), 1, 4, 9, None, None)]
    assert "expert_up" in parts and "expert_down" in parts
    assert "expert_up" in silicon().basis([mixture(gated=False)]).split("computed")[1]


def test_grids_of_batch_and_context_give_what_single_points_give():
    shape, device = public_shape("llama-3-8b"), silicon()
    batch, context = np.array([1, 4, 20]), np.array([[200.0], [6000.0]])
    many = device.forward_seconds(shape, batch, 4, context)
    for i, j in np.ndindex(2, 3):
        one = device.forward_seconds(shape, int(batch[j]), 4, float(context[i, 0]))
        assert isinstance(one.median, float)
        for name in ("median", "low", "high"):
            assert getattr(many, name)[i, j] == pytest.approx(getattr(one, name))


def test_measured_ops_narrow_the_interval_of_the_fallback():
    shape, device = public_shape("llama-3-8b"), silicon()
    device = replace(device, fallback=replace(device.fallback, relative_error=0.5))
    seconds = device.forward_seconds(shape, 4, 1, 1023)
    computed = device.fallback.forward_seconds(shape, 4, 1, 1023)
    assert seconds.high / seconds.median < 1.35
    assert computed.high / computed.median == pytest.approx(1.5, rel=0.01)


def test_what_lies_outside_of_the_tables_is_stated():
    shape, device = public_shape("llama-3-8b"), silicon()
    assert device.forward_seconds(shape, 1, 1, 500_000).extrapolated


def test_other_number_formats_fall_back_wholly():
    shape = public_shape("llama-3-8b")
    wide = replace(shape, dtype="float32", formats=type(shape.formats).uniform(_format("float32")))
    device = silicon()
    seconds = device.forward_seconds(wide, 1, 1, 100)
    computed = device.fallback.forward_seconds(wide, 1, 1, 100)
    assert seconds.median == pytest.approx(computed.median)
    assert seconds.high == pytest.approx(computed.high)
    assert "computed from data-sheet figures" in device.basis([wide])


def test_the_basis_names_measured_and_computed_ops():
    words = silicon(2).basis([public_shape("llama-3-8b")])
    measured, computed = words.split(" and is computed from data-sheet figures ")
    for name in ("query_key_value", "attention", "mlp_up", "mlp_down", "lm_head", "all_reduce"):
        assert name in measured
    assert "all_gather" in computed and "small kernels" in computed
    assert "attention" not in computed


def test_prompts_ops_and_glue():
    shape, device = public_shape("llama-3-8b"), silicon()
    assert device.prefill_seconds(shape, 2, 100) == device.forward_seconds(
        shape, 2, 100, 0, logit_rows=1
    )
    assert device.op_seconds("accept", 1, 4) == device.fallback.op_seconds("accept", 1, 4)
    assert device.round_seconds(3) == device.fallback.round_seconds(3)
    assert device.memory_bytes == device.fallback.memory_bytes
    assert silicon(8).memory_bytes == 8 * device.memory_bytes


def _format(name: str, block: int = 1, size: float = 0.0, math: str | None = None) -> NumberFormat:
    return number_format(name) if not size else NumberFormat(name, block, size, math)


@pytest.mark.parametrize(
    ("form", "dtype", "tables"),
    [
        (_format("bfloat16"), "bfloat16", ("bfloat16",)),
        (_format("float16"), "float16", ("bfloat16",)),
        (_format("float32"), "float32", ()),
        (_format("fp8", 1, 1.0, "fp8"), "bfloat16", ("fp8", "fp8_block")),
        (_format("fp8-128", 16384, 16388.0, "fp8"), "bfloat16", ("fp8_block", "fp8")),
        (_format("int8", 1, 1.0), "bfloat16", ("int8_wo",)),
        (_format("q4", 32, 18.0), "float16", ("int4_wo",)),
        (_format("q4", 32, 18.0), "float32", ()),
        (_format("q6", 256, 210.0), "float16", ()),
        (_format("nvfp4", 16, 9.0, "fp4"), "bfloat16", ("nvfp4",)),
        (_format("w8a8", 1, 1.0, "int8"), "bfloat16", ("sq",)),
    ],
)
def test_formats_of_the_tables(form, dtype, tables):
    assert table_formats(form, dtype) == tables


def test_names_of_devices():
    assert is_device_name("silicon:h100_sxm/vllm")
    assert is_device_name("8xsilicon:h100_sxm/vllm")
    assert is_device_name("2xh100-sxm")
    assert not is_device_name("h1000")
    for sheet in SHEET_OF_SYSTEM.values():
        assert isinstance(load_device(sheet), AnalyticDevice)


def test_without_the_extra_its_command_is_the_remedy(monkeypatch):
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(MissingCapabilityError, match=r"pip install 'specplan\[silicon\]'"):
        load_device("8xsilicon:h100_sxm/vllm")


def test_stacks_are_those_of_the_tables():
    with pytest.raises(UsageError, match="under their own stack"):
        load_device("silicon:h100_sxm/vllm@graph")


@pytest.fixture
def installed(monkeypatch, tmp_path: Path) -> Path:
    """A package with one table, found as the installed one would be."""
    pytest.importorskip("pyarrow", reason="tables are Parquet files, which need pyarrow")
    folder = tmp_path / "systems"
    data = folder / "data" / "h100_sxm"
    files = {
        "gemm/test/1.0/gemm_perf": synthetic.products_table(),
        "attention/test/1.0/generation_attention_perf": synthetic.decode_table(),
        "attention/test/1.0/context_attention_perf": synthetic.prompt_table(),
        "moe/test/1.0/moe_perf": synthetic.experts_table(),
        "comm/nccl/2.0/nccl_perf": synthetic.reduction_table(),
    }
    for name, table in files.items():
        write(table, data / f"{name}.parquet")
    (folder / "query_versions.yaml").write_text(VERSIONS)
    (folder / "h100_sxm.yaml").write_text(SHEET)
    (folder / "data" / "moon" / "gemm" / "test" / "1.0").mkdir(parents=True)
    (folder / "data" / "moon" / "gemm" / "test" / "1.0" / "gemm_perf.parquet").touch()
    (folder / "moon.yaml").write_text(SHEET)
    spec = ModuleSpec("found", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(package, "find_spec", lambda name: spec)
    return folder


def test_a_device_is_loaded_from_the_packages_files(installed):
    device = load_device("2xsilicon:h100_sxm/test")
    assert isinstance(device, SiliconDevice)
    assert device.name == "2xsilicon:h100_sxm/test"
    assert device.fallback.count == 2
    shape = public_shape("llama-3-8b")
    seconds = device.forward_seconds(shape, 4, 1, 1023).median
    assert seconds == pytest.approx(silicon(2).forward_seconds(shape, 4, 1, 1023).median)
    assert "h100_sxm/comm/nccl/2.0/nccl_perf.parquet" in device.basis([shape])
    assert device.tables.experts("bfloat16") is not None


def test_unknown_tables_and_systems_without_a_sheet_are_refused(installed):
    with pytest.raises(UsageError, match="silicon:h100_sxm/test"):
        load_device("silicon:h100_sxm/vllm")
    with pytest.raises(UsageError, match="no data sheet for moon"):
        load_device("silicon:moon/test")
