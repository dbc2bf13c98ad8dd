"""Rounds compiled to native code decode as the interpreter does; each combination of ops once."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from specplan.backends.inductor.backend import InductorBackend, check_linked
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from tests.backends.compiled_plans import DRAWN_CHAIN, FEWER, SHORT, requests_of
from tests.backends.pairs import load_pair, run, save_pair
from tests.ir.plans_on_disk import plan_of

pytestmark = pytest.mark.skipif(
    InductorBackend().available() is not None, reason=str(InductorBackend().available())
)

NATIVE = {DRAWN_CHAIN: SHORT, **FEWER}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [DRAWN_CHAIN, *(pytest.param(name, marks=pytest.mark.long) for name in FEWER)],
)
def test_tokens_are_those_of_the_interpreter(name: str, tmp_path: Path) -> None:
    plan, settings = NATIVE[name]
    fused = "spans" in name  # once with the ops of our kernels, in their plain form
    save_pair(tmp_path, layers=2, head_dim=64 if fused else 8)
    dtype = "float32" if fused else "float64"
    models, requests, out = load_pair(tmp_path, dtype), requests_of(**settings), tmp_path / "out"
    backend = InductorBackend(fused_on={"cpu"} if fused else ())
    expected = run(plan, models, requests)
    executable = backend.compile(plan, models, out)
    assert len(executable.fused.attention) == (2 if fused else 0)
    generation = generate(executable, requests)
    assert [item.tokens for item in generation.completions] == expected
    # the package alone, with weights of models that are loaded anew
    again = backend.compile(plan, load_pair(tmp_path, dtype), out)
    written = sorted(out.rglob("*"))
    assert [item.tokens for item in generate(again, requests).completions] == expected
    assert sorted(out.rglob("*")) == written


def test_weights_are_named_and_shared(pair_folder: Path) -> None:
    target: CausalModel = load_pair(pair_folder)["target"]
    weights = target.weights()
    assert weights["family.layers.0.qkv"] is target.family.layers[0].qkv  # type: ignore[attr-defined]
    inverse = target.family.rotary.inv_freq  # type: ignore[attr-defined]
    assert weights["family.rotary.inv_freq"] is inverse
    elements = sum(weight.numel() for weight in weights.values())
    assert elements >= 3 * (64 * 32 + 32 * 32 + 3 * 32 * 48) + 61 * 32


def test_a_plan_that_cannot_run_is_refused_by_name(pair_folder: Path) -> None:
    plan = plan_of("self_draft_view")
    with pytest.raises(MissingCapabilityError, match="backend inductor cannot run `state @part"):
        InductorBackend().compile(plan, load_pair(pair_folder))


def test_code_that_contains_the_library_is_not_left_to_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch loads a package into its own process, which such code ends."""
    monkeypatch.setenv("CXX", "/opt/gcc/bin/g++")
    for name, code in (("shared.pt2", b"..libstdc++.so.6.."), ("alone.pt2", b"....")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("round/model.wrapper.so", code)
    check_linked(tmp_path / "shared.pt2")
    with pytest.raises(UsageError, match="statically") as error:
        check_linked(tmp_path / "alone.pt2")
    assert error.value.where == "CXX=/opt/gcc/bin/g++"
