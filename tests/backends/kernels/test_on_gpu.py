"""Kernels on a GPU: compiled when they are launched, and loaded as they were built before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specplan.backends.kernels import launcher, ops, torch_forms
from specplan.backends.kernels.build import build_kernels
from specplan.backends.kernels.variants import acceptance, variants
from specplan.runtime.acceptance import DraftedTree
from tests.backends.kernels.cases import attention_case, rotation_case, tree_case

pytestmark = pytest.mark.gpu


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels for this GPU, loaded; nothing else is launched."""
    pytest.importorskip("triton", reason="triton is not installed")
    major, minor = torch.cuda.get_device_capability()
    wanted = [
        *variants(["bf16"], [128]),  # and what trees that are drawn otherwise are judged by
        *(acceptance(rule, 16, drawn=False) for rule in ("token", "recursive")),
        acceptance("recursive", 16, distinct=False),
    ]
    build_kernels(tmp_path / "kernels", wanted, [f"sm_{major}{minor}"])
    monkeypatch.setattr(launcher, "_loaded", {})
    launcher.load_kernels(tmp_path / "kernels", torch.device("cuda", 0))
    monkeypatch.setattr(launcher, "_compiled", lambda name: pytest.fail(f"{name}: not loaded"))
    yield


CASES = [
    (torch.bfloat16, 0, 128),
    (torch.float16, 16, 64),
    (torch.float32, 0, 64),
    (torch.bfloat16, 16, 128),
]


@pytest.mark.parametrize(("dtype", "page", "head_dim"), CASES)
@pytest.mark.parametrize("tokens", [1, 9, 128])
def test_attention(dtype: torch.dtype, page: int, head_dim: int, tokens: int) -> None:
    case = [
        item.cuda() if isinstance(item, Tensor) else item
        for item in attention_case(
            8, batch=2, kv_heads=2, group=4, tokens=tokens, head_dim=head_dim, slots=3000,
            window=200, page=page, dtype=dtype,
        )
    ]  # fmt: skip
    exact = [
        item.double() if i < 3 and isinstance(item, Tensor) else item for i, item in enumerate(case)
    ]
    wanted = torch_forms.tree_attention(*exact)
    bound = 2e-5 if dtype == torch.float32 else 2e-2
    for splits in (0, 1, 8):
        output = ops.tree_attention(*case, splits)
        torch.testing.assert_close(output.double(), wanted, atol=bound, rtol=bound)


@pytest.mark.parametrize("rule", ops.RULES)
def test_rules(rule: str) -> None:
    judged(rule, 200)


def judged(rule: str, seeds: int) -> None:
    for seed in range(seeds):
        tree, target, uniforms = tree_case(seed, chain=rule == "token")
        wanted = ops.accept(rule, tree, target, uniforms)
        moved = {
            name: item.cuda() if isinstance(item, Tensor) else item
            for name, item in vars(tree).items()
        }
        on_gpu = ops.accept(rule, DraftedTree(**moved), target.cuda(), uniforms.cuda())
        for field, value in vars(wanted).items():
            assert torch.equal(getattr(on_gpu, field).cpu(), value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotations(dtype: torch.dtype) -> None:
    case = rotation_case(
        5, batch=3, tokens=6, heads=32, kv_heads=8, head_dim=128, slots=99, dtype=dtype
    )
    there = [item.cuda() for item in case]
    rotated, wanted = ops.rotate_and_store(*there), ops.rotate_and_store(*case)
    torch.testing.assert_close(rotated.cpu(), wanted)
    for mine, theirs in zip(there[4:], case[4:], strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_and_gated_activations(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    bound = 1e-5 if dtype == torch.float32 else 1e-2
    for width in (64, 4096, 14336):
        hidden, weight, joined = (
            torch.randn(shape, generator=random).to(dtype)
            for shape in ((5, width), (width,), (5, 2 * width))
        )
        on_gpu = ops.rms_norm(hidden.cuda(), weight.cuda(), 1e-5), ops.gated_silu(joined.cuda())
        exact = (
            torch_forms.rms_norm(hidden.double(), weight.double(), 1e-5),
            torch_forms.gated_silu(joined.double()),
        )
        for mine, wanted in zip(on_gpu, exact, strict=True):
            torch.testing.assert_close(mine.cpu().double(), wanted, atol=bound, rtol=bound)


def test_moves() -> None:
    random = torch.Generator().manual_seed(0)
    caches = [torch.randn(4, 8, 600, 128, generator=random).bfloat16() for _ in range(64)]
    source, destination = (
        torch.stack([torch.randperm(600, generator=random)[:16] for _ in range(4)])
        for _ in range(2)
    )
    live = torch.rand(4, 16, generator=random) < 0.8
    moved = [cache.cuda() for cache in caches]
    ops.move_slots(moved, source.cuda(), destination.cuda(), live.cuda())
    ops.move_slots(caches, source, destination, live)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(moved, caches, strict=True))


def test_kernels_built_before(built: None) -> None:
    for tokens in (1, 9, 64):
        test_attention(torch.bfloat16, 0, 128, tokens)
    for rule in ops.RULES:
        judged(rule, 20)
    test_moves()
    test_rotations(torch.bfloat16)
    test_norms_and_gated_activations(torch.bfloat16)
