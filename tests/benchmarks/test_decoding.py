"""What `decoding.py` counts and compares, on a tiny pair."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.measure.workbench import TokenPrompt
from tests.backends.compiled_plans import drawn_tree
from tests.backends.pairs import load_pair, plain, save_pair
from tests.benchmarks.fake_backend import Fake


@pytest.fixture
def decoding(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    found = importlib.import_module("decoding")
    monkeypatch.setattr(found, "OUTPUT_TOKENS", 8)
    return found


def test_a_round_is_one_call_into_what_the_backend_compiled(
    decoding: ModuleType, tmp_path: Path
) -> None:
    """Two passes of a draft model and one of the target; the backend is the one that is named."""
    save_pair(tmp_path / "pair", layers=2)
    models, backend = load_pair(tmp_path / "pair"), Fake()
    prompts = [TokenPrompt("a", (1, 2, 3)), TokenPrompt("b", (4, 5))]
    for plan in (plain(greedy=False), drawn_tree(1)):
        folder = tmp_path / plan.name
        calls, seconds = decoding.timed_rounds(backend, plan, models, folder, prompts)
        assert calls == 1.0 and seconds > 0.0
        assert [path.is_dir() for path in folder.iterdir()] == [True]
    assert len(backend.graphs) == 2


def test_the_fastest_is_a_compiled_plan_with_its_backend(decoding: ModuleType) -> None:
    spent = {
        "autoregressive, reference": 4.0,
        "autoregressive, inductor": 2.0,
        "prompt_lookup up to 3, reference": 0.5,  # no compiled plan
        "prompt_lookup up to 3, inductor": 1.5,
        "draft_model chain, 4 tokens, onnxruntime": 1.0,
        "transformers.generate": 3.0,
        "transformers.generate, prompt lookup": 2.5,
    }
    found = {name: decoding.Contender(name, None, [seconds] * 3) for name, seconds in spent.items()}
    plan, backend, ratios = decoding.paired(found)
    assert (plan, backend) == ("draft_model chain, 4 tokens", "onnxruntime")
    assert ratios == {
        "autoregressive": 2.0, "transformers_greedy": 3.0, "transformers_assisted": 2.5
    }  # fmt: skip
