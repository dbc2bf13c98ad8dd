"""Finding and reading the package's files; those that it lacks are named."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.devices.silicon import package
from specplan.ir.errors import MissingCapabilityError, UsageError
from tests.cost_models.devices.silicon import synthetic

SHEET = """
gpu:
  mem_bw: 3350000000000
  mem_capacity: 85899345920
  bfloat16_tc_flops: 989000000000000
  fp8_tc_flops: 1978000000000000
node:
  intra_node_bw: 450000000000
"""
VERSIONS = """
defaults:
  vllm: {current: "0.9.0", previous: null}
overrides:
  old_gpu:
    vllm: {current: "0.2.0", previous: null}
"""


def write(table: package.Table, file: Path) -> Path:
    """Write a table as the package has it: latencies in milliseconds."""
    arrow = pytest.importorskip("pyarrow", reason="tables are Parquet files, which need pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: values.tolist() for name, values in table.columns.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table({**columns, "latency": (table.seconds * 1e3).tolist()}), file)
    return file


@pytest.fixture
def systems(tmp_path: Path) -> Path:
    """The folder `systems` with two data sheets and no tables."""
    folder = tmp_path / "systems"
    folder.mkdir()
    (folder / "query_versions.yaml").write_text(VERSIONS)
    for system in ("test_gpu", "old_gpu"):
        (folder / f"{system}.yaml").write_text(SHEET)
    return folder


def test_without_the_extra_the_remedy_is_its_pip_command(monkeypatch):
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(MissingCapabilityError) as error:
        package.systems_folder()
    assert error.value.exit_code == 4
    assert "pip install 'specplan[silicon]'" in error.value.remedy


def test_the_package_is_found_without_being_imported(monkeypatch, tmp_path):
    spec = ModuleSpec("found", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(package, "find_spec", lambda name: spec)
    assert package.systems_folder() == tmp_path / "systems"


def test_data_sheets_are_read_with_what_they_have(systems):
    sheet = package.read_sheet(systems, "test_gpu")
    assert sheet.memory_bandwidth == 3.35e12
    assert sheet.link_bandwidth == 450e9
    assert sheet.peak("fp8") == 1978e12
    assert sheet.peak("float16") == sheet.peak("fp4") == 989e12
    with pytest.raises(UsageError, match="no data sheet"):
        package.read_sheet(systems, "missing_gpu")


def test_the_current_version_is_taken_else_the_newest(systems):
    for system, versions in {
        "test_gpu": ("0.8.0", "0.9.0", "0.10.0"),
        "old_gpu": ("0.2.0", "0.10.0"),
        "new_gpu": ("0.8.0", "0.10.0", "0.9.1"),
    }.items():
        for version in versions:
            folder = systems / "data" / system / "gemm" / "vllm" / version
            folder.mkdir(parents=True)
            (folder / "gemm_perf.parquet").touch()

    def version(system: str) -> str:
        path = package.find_table(systems, system, "gemm", "vllm", "gemm_perf")
        assert path is not None
        return path.parent.name

    assert version("test_gpu") == "0.9.0"
    assert version("old_gpu") == "0.2.0"
    assert version("new_gpu") == "0.10.0"
    assert package.find_table(systems, "test_gpu", "moe", "vllm", "moe_perf") is None
    assert package.list_systems(systems) == ("new_gpu/vllm", "old_gpu/vllm", "test_gpu/vllm")


def test_tables_come_back_in_seconds_and_without_rows_that_failed(tmp_path):
    table = synthetic.products_table()
    seconds = table.seconds.copy()
    seconds[3] = 0.0
    broken = synthetic.table(seconds, **table.columns)
    read = package.read_table(write(broken, tmp_path / "t.parquet"), ("gemm_dtype", "m", "n"))
    assert len(read.seconds) == len(seconds) - 1
    np.testing.assert_allclose(read.seconds, np.delete(seconds, 3))
    assert sorted(read.columns) == ["gemm_dtype", "m", "n"]
    assert set(read.columns["gemm_dtype"]) == {"bfloat16", "fp8"}


def test_missing_columns_are_named_and_optional_ones_not_needed(tmp_path):
    file = write(synthetic.decode_table(), tmp_path / "t.parquet")
    assert "window_size" in package.read_table(file, ("isl",), ("window_size", "other")).columns
    with pytest.raises(UsageError, match="no column speed"):
        package.read_table(file, ("isl", "speed"))


def test_files_that_are_no_tables_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "t.parquet"
    file.write_text("not a table")
    with pytest.raises(UsageError, match="cannot read the table"):
        package.read_table(file, ("m",))
