"""Chains that end by a rule, drafted by parts of models: the target's own output, in every way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specplan.backends.reference.backend import ReferenceBackend
from specplan.ir.plan import Plan
from specplan.planner.who_drafts import profiling_plan
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, load_pair, plain, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.planner.example_facts import SEVEN_BILLION, example_facts

torch.set_num_threads(1)
PLANS = {
    "adaptive_bar": ("target+without_a1m1_bar90_6", "target+kept20_bar90_6"),
    "thompson": ("target+without_m1_coin6", "draft+kept18_coin6"),
    "heuristic_length": ("target+without_a1m1_steps5_6", "target+kept20_steps5_6"),
    "adaptive_length": ("target+without_a1_token40_10", "draft+kept18_token60_10"),
}


def plans(folder: Path, temperature: float) -> dict[str, Plan]:
    found = {}
    target = SEVEN_BILLION | {"num_hidden_layers": 3}
    for method, names in PLANS.items():
        facts = example_facts(folder, temperature=temperature, target=target, methods=[method])
        for name in names:
            plan = profiling_plan(facts, name)
            assert plan is not None and plan.name == method, name
            found[name] = plan
    return found


@pytest.fixture(scope="module")
def sure(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("sure")
    save_pair(folder, scale=0.45)
    return load_pair(folder)


def test_greedy_output_is_the_targets(sure: dict[str, CausalModel], tmp_path: Path) -> None:
    """Texts longer than the budgets; drafts that end at several lengths, some of them late."""
    requests = [
        Request(
            prompt_tokens=tuple((7 * i * i + seed) % 61 for i in range(1 + 9 * seed)),
            max_new_tokens=12 + 2 * seed,
            seed=seed,
        )
        for seed in range(4)
    ]
    expected = in_batches(plain(), sure, requests, 4)
    for name, plan in plans(tmp_path, 0.0).items():
        assert in_batches(plan, sure, requests, 4) == expected, name
        session = ReferenceBackend().compile(plan, sure).start(requests)
        session.prefill()
        trips = set()
        while not all(session.done):
            step = session.step("decode")
            assert step.trips is not None
            trips |= set(step.trips[:, 0].tolist())
        assert len(trips) > 1, name


def test_sampled_output_has_the_targets_law(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.mktemp("small_pair")
    save_pair(folder, VOCABULARY, scale=0.15)
    models = load_pair(folder)
    law = law_of_texts(models["target"])
    drawn = plans(tmp_path, 0.8)
    for name in ("target+without_a1m1_bar90_6", "target+kept20_bar90_6"):
        assert p_value(drawn[name], models, law, seeds=1500) > 1e-4, name
