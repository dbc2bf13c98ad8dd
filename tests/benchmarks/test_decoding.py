"""What `decoding.py` counts and compares, on a tiny pair."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.ir.ops import Lookup
from specplan.ir.plan import walk_plan
from specplan.planner.search.search import search
from specplan.runtime.requests import Request
from tests.backends.compiled_plans import drawn_tree
from tests.backends.pairs import load_pair, plain, save_pair
from tests.benchmarks.fake_backend import Fake
from tests.planner.example_facts import example_facts


@pytest.fixture
def decoding(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("decoding")


def test_a_round_is_one_call_into_what_the_backend_compiled(
    decoding: ModuleType, tmp_path: Path
) -> None:
    """Two passes of a draft model and one of the target; the backend is the one that is named."""
    save_pair(tmp_path / "pair", layers=2)
    models, backend = load_pair(tmp_path / "pair"), Fake()
    texts = ((1, 2, 3), (4, 5))
    requests = [Request(prompt_tokens=text, max_new_tokens=8) for text in texts]
    for plan in (plain(greedy=False), drawn_tree(1)):
        folder = tmp_path / plan.name
        calls, seconds = decoding.timed_rounds(backend, plan, models, folder, requests)
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
    contenders = {
        name: decoding.Contender(name, None, [seconds] * 3) for name, seconds in spent.items()
    }
    plan, backend, ratios = decoding.paired(contenders)
    assert (plan, backend) == ("draft_model chain, 4 tokens", "onnxruntime")
    assert ratios == {
        "autoregressive": 2.0, "transformers_greedy": 3.0, "transformers_assisted": 2.5
    }  # fmt: skip


def test_plans_are_the_best_priced_that_compile(decoding: ModuleType, tmp_path: Path) -> None:
    searched = search(example_facts(tmp_path))
    plans, alone = decoding.best_plans(searched)
    assert len(plans) == decoding.PLANS and len(alone) == 1
    assert not any(isinstance(op, Lookup) for plan in alone.values() for op in walk_plan(plan))
    prices = decoding.predicted({"one": searched, "other": searched}, plans)
    names = [decoding.PLAIN, *plans]
    assert set(prices) == {f"{name}, {backend}" for name in names for backend in ("one", "other")}
    predicted = [prices[f"{name}, one"] for name in plans]
    assert predicted == sorted(predicted, reverse=True)
    chosen = searched.chosen.estimates[0].tokens_per_second.mean
    assert predicted[0] == pytest.approx(chosen, rel=0.02), "a tie at most"
