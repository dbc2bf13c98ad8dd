"""Kernels built ahead of time: what is written, what is refused, and what they take of a GPU."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.kernels import tiles
from specplan.backends.kernels.build import build_kernels, compiled, triton_version
from specplan.backends.kernels.kernel_folder import Built, read_kernels
from specplan.backends.kernels.variants import (
    ARCHITECTURES,
    INDEX,
    Variant,
    acceptance,
    attention,
    variants,
)
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import write_json_atomic
from tests.backends.kernels.resources import Figures, figures_of, table_of
from tests.matrix import sized

pytest.importorskip("triton", reason="triton is not installed")

SHARED_MEMORY = {"sm_80": 163, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}
"""KiB that a program may have (CUDA C++ programming guide, technical specifications)."""
OTHERS = ("sm_80", "sm_89", "sm_100", "sm_120")[: sized(1, 4)]
UPDATE = bool(os.environ.get("SPECPLAN_UPDATE_GOLDEN"))


def built_here() -> dict[str, list[Variant]]:
    """All kernels for one architecture (those near to spilling are built for `OTHERS` too); for
    every one to update the table."""
    return {arch: variants() for arch in (ARCHITECTURES if UPDATE else ("sm_90",))}


def variants_of(arch: str) -> list[Variant]:
    return [variant for variant in variants() if arch in variant.architectures]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    by_arch = {}
    for arch, chosen in built_here().items():
        by_arch[arch] = tmp_path_factory.mktemp("kernels") / arch
        build_kernels(by_arch[arch], chosen, [arch])
    return by_arch


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["sm_90"], tmp_path / "kernels"))


def table_path(repository: Path) -> Path:
    return repository / "tests/backends/kernels/resources.json"


def test_what_is_written_is_read_back(folders: dict[str, Path]) -> None:
    kernels = read_kernels(folders["sm_90"], "sm_90")
    assert sorted(kernels) == sorted(variant.name for variant in variants_of("sm_90"))
    for variant in variants_of("sm_90"):
        kernel, cubin = kernels[variant.name]
        assert cubin.startswith(b"\x7fELF")
        assert kernel.function.encode() in cubin
        assert kernel.signature == list(variant.signature.items())
        assert kernel.num_warps == variant.num_warps


def test_moves_read_all_before_they_write(folders: dict[str, Path]) -> None:
    """In the code itself: every load from the caches, a barrier, and only then stores."""
    import subprocess

    from tests.backends.kernels.resources import tool

    done = subprocess.run(
        [
            str(tool("nvdisasm")),
            str(folders["sm_90"] / "sm_90/move_slots_256bytes_m16_contiguous.cubin"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = [
        kind
        for line in done.stdout.splitlines()
        for kind in ("LDG", "BAR.SYNC", "STG")
        if f" {kind}" in line
    ]
    barrier = kinds.index("BAR.SYNC")
    assert "STG" not in kinds[:barrier] and "LDG" not in kinds[barrier:]
    assert "LDG" in kinds and "STG" in kinds


def test_attention_compiles_as_inductor_calls_it(tmp_path: Path) -> None:
    """Which passes numbers that are no integers in double precision."""
    for dtype in ("bf16", "fp32"):
        first = next(attention(dtype, 64, [4]))
        called = replace(first, signature={**first.signature, "scale": "fp64"})
        assert build_kernels(tmp_path / dtype, [called], ["sm_90"]).kernels


def test_another_architecture_is_refused(folder: Path) -> None:
    with pytest.raises(MissingCapabilityError, match=r"for sm_90, not for sm_80.*--arch sm_80"):
        read_kernels(folder, "sm_80")


def test_code_of_one_generation_is_built_once(tmp_path: Path) -> None:
    *_, combining = attention("fp16", 64, [4])
    judging = acceptance("greedy", 4)
    index = build_kernels(tmp_path / "out", [judging, combining], ["sm_80", "sm_89"])
    made = [(kernel.arch, kernel.name) for kernel in index.kernels]
    assert made == [("sm_80", judging.name), ("sm_80", combining.name), ("sm_89", combining.name)]
    for arch, home in (("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_89", "sm_89")):
        arch_of = {
            name: it.kernel.arch for name, it in read_kernels(tmp_path / "out", arch).items()
        }
        assert arch_of == {judging.name: "sm_80", combining.name: home}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("flip", "its sha256 differs"),
        ("cut", "its sha256 differs"),
        ("remove", "cannot read the kernel"),
    ],
)
def test_damaged_code_is_refused(folder: Path, damage: str, message: str) -> None:
    path = folder / "sm_90/accept_greedy_n128.cubin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flip" else data[:-1])
    with pytest.raises(UsageError, match=message) as raised:
        read_kernels(folder, "sm_90")
    assert "accept_greedy" in str(raised.value)


def edited(index: dict[str, Any], how: str) -> dict[str, Any]:
    first = index["kernels"][0]
    if how == "version":
        index["schema_version"] = 9
    elif how == "type":
        first["num_warps"] = "4"
    elif how == "unknown":
        first["more"] = 1
    elif how == "missing":
        del first["sha256"]
    else:
        first["name"] = "../../elsewhere"
        first["file"] = "sm_90/../../elsewhere.cubin"
    return index


@pytest.mark.parametrize("how", ["version", "type", "unknown", "missing", "path"])
def test_a_wrong_index_is_refused(folder: Path, how: str) -> None:
    index = json.loads((folder / INDEX).read_text())
    write_json_atomic(folder / INDEX, edited(index, how))
    with pytest.raises(UsageError, match=r"Build the kernels again"):
        read_kernels(folder, "sm_90")


def test_what_cannot_be_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="architecture 'sm_75'"):
        build_kernels(tmp_path / "out", variants(), ["sm_75"])
    with pytest.raises(UsageError, match="number type 'int8'"):
        variants(["int8"])
    with pytest.raises(UsageError, match="head size 80"):
        variants(["bf16"], [80])
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("")
    with pytest.raises(UsageError, match="holds no kernels"):
        build_kernels(tmp_path / "other", variants())
    assert not (tmp_path / "out").exists()


def nearly_spilling(table: dict[str, dict[str, Figures]]) -> list[Variant]:
    """Kernels that leave next to no register unused on a device for which not all are built here.

    A thread has 255 registers; a kernel of fewer than 240 has some way to go until it spills.
    """
    names = {
        name
        for kernels in table.values()
        for name, figures in kernels.items()
        if figures["registers"] >= 240 or figures["spilled_bytes"]
    }
    return [variant for variant in variants() if variant.name in names]


def test_registers_spills_and_shared_memory(folders: dict[str, Path], repository: Path) -> None:
    """Against the committed table; SPECPLAN_UPDATE_GOLDEN=1 writes it anew.

    By another version of triton kernels may take other registers; none may spill more.
    """
    path, version = table_path(repository), triton_version()
    usage = table_of(
        built for arch, there in folders.items() for built in read_kernels(there, arch).values()
    )
    if UPDATE:
        write_json_atomic(path, {"triton": version, "kernels": usage})
    table = json.loads(path.read_text())
    others = [arch for arch in OTHERS if arch not in usage]
    nearest = nearly_spilling({arch: table["kernels"][arch] for arch in others})
    if others:
        usage |= table_of(compiled(nearest, others))
        assert {arch for arch, kernels in usage.items() if kernels} == {"sm_90", *others}
    for arch, kernels in usage.items():
        for name, figures in kernels.items():
            known = table["kernels"][arch][name]
            assert figures["spilled_bytes"] <= known["spilled_bytes"], f"{name} spills on {arch}"
            if table["triton"] == version:
                how = "SPECPLAN_UPDATE_GOLDEN=1 updates the table"
                assert figures == known, f"{name} on {arch}: {how}"


def test_the_table_is_whole_and_fits_the_devices(repository: Path) -> None:
    table = json.loads(table_path(repository).read_text())["kernels"]
    assert {arch: set(kernels) for arch, kernels in table.items()} == {
        arch: {variant.name for variant in variants_of(arch)} for arch in ARCHITECTURES
    }
    for arch, kernels in table.items():
        for name, figures in kernels.items():
            assert figures["shared_bytes"] <= SHARED_MEMORY[arch] * 1024, (arch, name)
            assert figures["registers"] <= 255


def test_more_spilled_bytes_are_seen(tmp_path: Path) -> None:
    """The same kernel with too few threads for its tile spills, and the figures say so."""
    (good,) = [item for item in variants(head_dims=[128]) if "combine" in item.name]
    crowded = replace(good, num_warps=1)
    build_kernels(tmp_path / "out", [crowded], ["sm_90"])
    (built,) = read_kernels(tmp_path / "out", "sm_90").values()
    assert figures_of(Built(*built))["spilled_bytes"] > 0


def test_tiles_and_splits() -> None:
    """The fastest of those measured on an H100 (benchmarks/results/gpu.md)."""

    def chosen(rows: int, slots: int, nodes: int) -> tuple[int, int, int]:
        """Of eight key/value heads, four query heads each: block sizes, and splits."""
        tile = tiles.attention_tile(4 * nodes, 128, 2, "sm_90")
        count = -(-4 * nodes // tile.block_m)
        splits = tiles.attention_splits(8 * rows, count, slots, tile, 132)
        return tile.block_m, tile.block_n, splits

    assert [chosen(1, 65536, nodes) for nodes in (1, 8, 16, 128)] == [
        (16, 64, 32), (64, 128, 16), (64, 128, 16), (64, 64, 8),
    ]  # fmt: skip
    assert [chosen(8, 8192, nodes)[2] for nodes in (1, 16, 64, 128)] == [4, 2, 2, 1]
    assert [chosen(1, 1024, nodes)[2] for nodes in (1, 16, 64, 128)] == [16, 8, 4, 2]
    assert chosen(64, 1024, 64)[2] == 1
    assert tiles.attention_tile(64, 128, 2, "sm_89").block_n == 64


def test_every_tile_fits_its_device() -> None:
    for arch, kib in SHARED_MEMORY.items():
        for lines in (1, 20, 64, 500):
            for size in (2, 4):
                for head_dim in tiles.HEAD_DIMS:
                    tile = tiles.attention_tile(lines, head_dim, size, arch)
                    rows = tile.block_m + 2 * tile.num_stages * tile.block_n
                    assert rows * head_dim * size <= kib << 10, (arch, tile)
