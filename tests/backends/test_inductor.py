"""Rounds compiled to native code decode as the interpreter does; each combination of ops once."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.backends.inductor.backend import InductorBackend
from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.generate import generate
from specplan.runtime.models import CausalModel
from tests.backends.compiled_plans import PLANS, requests_of
from tests.backends.pairs import load_pair, run
from tests.backends.source_plans import source_plans

pytestmark = pytest.mark.skipif(
    InductorBackend().available() is not None, reason=str(InductorBackend().available())
)


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_tokens_are_those_of_the_interpreter(
    name: str, models: dict[str, CausalModel], pair_folder: Path, tmp_path: Path
) -> None:
    plan, settings = PLANS[name]
    requests = requests_of(**settings)
    expected = run(plan, models, requests)
    executable = InductorBackend().compile(plan, models, tmp_path)
    found = generate(executable, requests)
    assert [item.tokens for item in found.completions] == expected
    # the package alone, with weights of models that are loaded anew
    again = InductorBackend().compile(plan, load_pair(pair_folder), tmp_path)
    written = sorted(tmp_path.rglob("*"))
    assert [item.tokens for item in generate(again, requests).completions] == expected
    assert sorted(tmp_path.rglob("*")) == written


def test_weights_are_named_and_shared(models: dict[str, CausalModel]) -> None:
    weights = models["target"].weights()
    assert weights["family.layers.0.qkv"] is models["target"].family.layers[0].qkv  # type: ignore[attr-defined]
    elements = sum(weight.numel() for weight in weights.values())
    assert elements >= 3 * (64 * 32 + 32 * 32 + 3 * 32 * 48) + 61 * 32


def test_a_plan_that_cannot_run_is_refused_by_name(models: dict[str, CausalModel]) -> None:
    plan = source_plans(greedy=True)["ngram"]
    with pytest.raises(MissingCapabilityError, match="backend inductor cannot run `state @past`"):
        InductorBackend().compile(plan, models)
