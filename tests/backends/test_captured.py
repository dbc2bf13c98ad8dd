"""Rounds captured in CUDA graphs decode as the interpreter does on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specplan.backends.bundle import write_bundle
from specplan.backends.bundle_executable import load_models, open_executable
from specplan.backends.inductor.backend import InductorBackend
from specplan.backends.static import captured as capturing
from specplan.backends.static.captured import CapturedRound, slots_attended
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.export import flat_program
from specplan.runtime.generate import generate
from tests.backends.compiled_plans import FEWER, requests_of
from tests.backends.pairs import load_pair, run, save_pair


def test_few_numbers_of_slots_serve_all_lengths() -> None:
    assert [slots_attended(used, 3000, True) for used in (5, 256, 257, 2049)] == [
        256, 256, 512, 3000,
    ]  # fmt: skip
    assert slots_attended(5, 3000, False) == 3000


@pytest.mark.gpu
def test_what_is_on_the_host_goes_in_and_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the CPU may differ from call to call; those on the device are written to.

    However many graphs hold the round.
    """
    monkeypatch.setattr(capturing, "FIRST_OPS", 1)
    device = torch.device("cuda", 0)
    total = torch.zeros(3, dtype=torch.int64, device=device)

    def program(total: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        total += added
        for _ in range(30):
            added = added * 2 - added
        return total * 3 - total * 2 + (total - added) + added

    captured, expected = CapturedRound(program, device), torch.zeros(3, dtype=torch.int64)
    for step in range(6):
        added = torch.arange(3) + 10 * step
        expected += added
        assert captured(total, added).tolist() == (2 * expected).tolist()
    assert total.cpu().tolist() == expected.tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("name", FEWER)
@pytest.mark.parametrize("kernels", [False, True])
def test_captured_rounds_tell_the_same_tokens(name: str, kernels: bool, tmp_path: Path) -> None:
    plan, settings = FEWER[name]
    # Kernels know no float64; in float32 a tie could fall otherwise, and none does here.
    dtype, size = ("float32", 64) if kernels else ("float64", 8)
    save_pair(tmp_path, layers=2, head_dim=size)
    requests = requests_of(**settings)
    expected = run(plan, load_pair(tmp_path, dtype), requests)
    executable = StaticExecutable(
        plan,
        load_pair(tmp_path, dtype, "cuda"),
        flat_program,
        fused_on={"cuda"},
        captured_on={"cuda"},
    )
    for _ in range(2):  # another batch is captured anew
        generation = generate(executable, requests).completions
        assert [item.tokens for item in generation] == expected


@pytest.mark.gpu
def test_a_bundle_without_kernels_is_captured(tmp_path: Path) -> None:
    plan, settings = FEWER["layer spans, tracks, drawn trees"]
    save_pair(tmp_path, layers=2)
    bundle = write_bundle(
        tmp_path / "bundle",
        plan=plan,
        problem={},
        report={},
        models={model.name: (tmp_path / model.name, "float64") for model in plan.models},
        backend="eager",
        versions={},
    )
    requests = requests_of(**settings)
    opened = (open_executable(bundle, load_models(bundle, where)) for where in ("cpu", "cuda"))
    expected, captured = (
        [item.tokens for item in generate(executable, requests).completions]
        for executable in opened
    )
    assert captured == expected


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(InductorBackend().available() is not None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", list(FEWER)[:2])
def test_compiled_rounds_tell_the_same_tokens(name: str, tmp_path: Path) -> None:
    plan, settings = FEWER[name]
    save_pair(tmp_path, layers=2, head_dim=64)
    requests = requests_of(**settings)
    expected = run(plan, load_pair(tmp_path, "float32"), requests)
    models = load_pair(tmp_path, "float32", "cuda")
    compiled = InductorBackend().compile(plan, models, tmp_path / "out")
    for _ in range(2):
        generation = generate(compiled, requests).completions
        assert [item.tokens for item in generation] == expected
