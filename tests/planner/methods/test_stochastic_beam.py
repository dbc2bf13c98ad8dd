"""Beams drawn without replacement: what is drawn at most, and that it decodes as is defined."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.types.infer import infer_round
from specplan.ir.types.value_types import TreeType
from specplan.planner.methods.stochastic_beam import METHOD, StochasticBeamOptions
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined
from tests.backends.pairs import load_pair, save_pair
from tests.planner.example_facts import example_facts

OPTIONS = [*METHOD.settings(["draft"])]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.words)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_level_has_as_many_nodes_as_the_beam(
    options: StochasticBeamOptions, temperature: float, tmp_path: Path
) -> None:
    plan = METHOD.plan(example_facts(tmp_path, temperature=temperature), options)
    assert verify_plan(plan) == () and plan.assumptions.lossless
    types = infer_round(plan, plan.rounds[0])
    trees = [one for one in types.types.values() if isinstance(one, TreeType)]
    assert max(tree.nodes for tree in trees) == options.width * options.depth
    assert max(tree.depth for tree in trees) == options.depth
    drawn = any(tree.drawn for tree in trees)
    assert drawn == (temperature > 0) and not any(tree.dropped_draws for tree in trees)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_beams_decode_as_is_defined(temperature: float, tmp_path: Path) -> None:
    facts = example_facts(tmp_path / "facts", temperature=temperature)
    save_pair(tmp_path, scale=1.0)
    requests = [
        Request(
            prompt_tokens=tuple(range(seed, seed + 5)),
            max_new_tokens=20,
            temperature=temperature,
            seed=seed,
        )
        for seed in range(3)
    ]
    for options in OPTIONS[:3]:
        text = print_plan(METHOD.plan(facts, options))
        decodes_as_defined(text, load_pair(tmp_path), requests)
