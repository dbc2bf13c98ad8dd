"""Sampled output of every plan kind follows the target's law, and depends on the seed alone."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan
from specplan.ir.printer import print_plan
from specplan.planner.method import discover_methods
from specplan.planner.rehearsed import Rehearsed
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from tests.backends.dynamic_trees import dynamic_plan
from tests.backends.kinds import every_kind, further_kinds, source_kinds
from tests.backends.pairs import in_batches, load_pair, plain, run, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value


@pytest.fixture(scope="module")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("small_pair")
    save_pair(folder, VOCABULARY, scale=0.15)
    return load_pair(folder)


@pytest.fixture(scope="module")
def exact_law(small_pair: dict[str, CausalModel]) -> np.ndarray:
    return law_of_texts(small_pair["target"])


def test_every_kind_has_the_targets_law(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray, tmp_path: Path
) -> None:
    assert p_value(plain(greedy=False), small_pair, exact_law) > 1e-4
    kinds = dict(every_kind(tmp_path, 0.8, 1))
    for name, plan in kinds.items():
        if "tree" in name:
            continue  # trees of 5 tokens: the next test
        assert p_value(plan, small_pair, exact_law) > 1e-4, name


@pytest.mark.parametrize("method", ["token_recycling", "trie_lookahead", "cascade"])
def test_drafts_from_sources_have_the_targets_law(
    method: str, small_pair: dict[str, CausalModel], exact_law: np.ndarray, tmp_path: Path
) -> None:
    kinds = source_kinds(tmp_path, 0.8, 1, most=6 if method == "cascade" else 16)
    plans = [plan for name, plan in kinds if name.startswith(method)]
    assert p_value(plans[-1], small_pair, exact_law, seeds=3000) > 1e-4


def test_further_kinds_have_the_targets_law(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray, tmp_path: Path
) -> None:
    kinds = dict(further_kinds(tmp_path, 0.8, 1, most=4))
    assert kinds
    for name, plan in kinds.items():
        assert p_value(plan, small_pair, exact_law, seeds=2000) > 1e-4, name


@pytest.mark.parametrize(
    "method",
    [
        name
        for name, one in discover_methods().items()
        if isinstance(one, Rehearsed) and not one.by_name
    ],
)
def test_drafts_left_by_earlier_rounds_have_the_targets_law(
    method: str, small_pair: dict[str, CausalModel], exact_law: np.ndarray, tmp_path: Path
) -> None:
    plans = [plan for name, plan in source_kinds(tmp_path, 0.8, 3) if name.startswith(method)]
    assert p_value(plans[0], small_pair, exact_law, seeds=1500) > 1e-4


def test_trees_have_the_targets_law(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray, tmp_path: Path
) -> None:
    trees = [plan for name, plan in every_kind(tmp_path, 0.8, 4) if "tree" in name]
    narrow = [plan for plan in trees if _widest(plan) <= VOCABULARY]
    assert narrow
    for plan in narrow[:2]:
        assert p_value(plan, small_pair, exact_law) > 1e-4


def test_chains_judged_as_a_block_have_the_targets_law(
    small_pair: dict[str, CausalModel], exact_law: np.ndarray, tmp_path: Path
) -> None:
    texts = [print_plan(plan) for _, plan in every_kind(tmp_path, 0.8, 4)]
    chains = [text for text in texts if "rule=token" in text]
    assert len(chains) >= 4
    for text in chains[:4]:
        plan = parse_plan(text.replace("rule=token", "rule=block"))
        assert p_value(plan, small_pair, exact_law) > 1e-4


@pytest.mark.parametrize("setting", [(2, 3, 4), (3, 2, 5), (2, 1, 2)])
def test_trees_that_differ_by_request_have_the_targets_law(
    setting: tuple[int, int, int], small_pair: dict[str, CausalModel], exact_law: np.ndarray
) -> None:
    assert p_value(dynamic_plan(*setting, greedy=False), small_pair, exact_law) > 1e-4


def test_a_wrong_law_is_noticed(small_pair: dict[str, CausalModel], exact_law: np.ndarray) -> None:
    wrong = 0.9 * exact_law + 0.1 * exact_law[::-1]
    assert p_value(plain(greedy=False), small_pair, wrong) < 1e-4


def _widest(plan: Plan) -> int:
    from specplan.ir.ops import Grow
    from specplan.ir.plan import walk_plan

    most = 1
    for op in walk_plan(plan):
        if isinstance(op, Grow):
            most = max(most, *(op.children if isinstance(op.children, tuple) else (op.children,)))
    return most


def test_output_depends_on_the_seed_not_on_batch_mates(pair_folder: Path, tmp_path: Path) -> None:
    models = load_pair(pair_folder)
    requests = [
        Request(
            prompt_tokens=tuple((index * 7 + place) % 61 for place in range(4 + index)),
            max_new_tokens=16,
            temperature=(0.0, 0.7, 1.0)[index % 3],
            top_k=(0, 20)[index % 2],
            seed=index,
        )
        for index in range(9)
    ]
    kinds = (every_kind(tmp_path, 0.8, 1), further_kinds(tmp_path / "more", 0.8, 1, most=6))
    for name, plan in chain.from_iterable(kinds):
        alone = in_batches(plan, models, requests, 1)
        assert in_batches(plan, models, requests, 9) == alone, name
        assert in_batches(plan, models, list(reversed(requests)), 4) == list(reversed(alone)), name
        again = [
            Request(**{**vars(request), "seed": request.seed + 100}) for request in requests[1::3]
        ]
        assert in_batches(plan, models, again, 3) != alone[1::3], name


def test_uniforms_are_the_only_chance(pair_folder: Path, tmp_path: Path) -> None:
    models = load_pair(pair_folder)
    request = Request(prompt_tokens=(3, 1, 4), max_new_tokens=16, temperature=1.0, seed=5)
    for name, plan in every_kind(tmp_path, 0.8, 1):
        torch.manual_seed(0)
        first = run(plan, models, [request])
        torch.manual_seed(1)
        assert run(plan, models, [request]) == first, name
