"""Chains that end by a rule, drafted by parts of models: the target's own output, in every way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.cost_models.acceptance.drafter_texts import read_drafter
from specplan.cost_models.acceptance.drafters import SkipBlocks, SmallCache
from specplan.ir.plan import Plan
from specplan.planner.method import discover_methods
from specplan.planner.templates.chains import StoppedChains
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, load_pair, plainly, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.planner.example_facts import SEVEN_BILLION, example_facts

torch.set_num_threads(1)
PARTS = {
    "adaptive_bar": ("skip_blocks(target, [attn.1, mlp.1])", "small_cache(target, 20)"),
    "thompson": ("skip_blocks(target, [mlp.1])", "small_cache(draft, 18)"),
    "heuristic_length": ("skip_blocks(target, [attn.1, mlp.1])", "small_cache(target, 20)"),
    "adaptive_length": ("skip_blocks(target, [attn.1])", "small_cache(draft, 18)"),
}
"""Parts of models whose drafts a method ends."""


def plans(folder: Path, temperature: float) -> dict[tuple[str, str], Plan]:
    """The last setting of each method with each part, by both."""
    target, made = SEVEN_BILLION | {"num_hidden_layers": 3}, {}
    for name, parts in PARTS.items():
        facts = example_facts(folder, temperature=temperature, target=target, methods=[name])
        method = discover_methods()[name]
        assert isinstance(method, StoppedChains)
        for part in parts:
            drafter = read_drafter(part)
            assert isinstance(drafter, SkipBlocks | SmallCache)
            made[name, part] = method.plan(facts, [*method.settings_of(drafter)][-1])
    return made


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
    expected = plainly(sure, requests)
    for name, plan in plans(tmp_path, 0.0).items():
        assert in_batches(plan, sure, requests, 4) == expected, name
        session = EagerBackend().compile(plan, sure).start(requests)
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
    for part in PARTS["adaptive_bar"]:
        assert p_value(drawn["adaptive_bar", part], models, law, seeds=1500) > 1e-4, part
