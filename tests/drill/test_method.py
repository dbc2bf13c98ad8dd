"""A drill: a package outside this one brings a method in a new form, and nothing else is edited."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import specplan
from specplan.backends.registry import INTERPRETER, backend_names
from specplan.bundles.decoder import PlanDecoder, Settings
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.measure.device.probes import plain_plan
from specplan.planner import gather_facts, load_problem
from specplan.planner.method import discover_methods
from tests.cli.test_program import specplan_here
from tests.planner.checkpoints import VOCABULARY, write_checkpoint

NAME = "regrown_trees"
LETTERS = VOCABULARY[:26]
PAIRS = [[first, second] for first in LETTERS[:8] for second in LETTERS[:8]]
DRAFTS = ("draft", "small")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package as if pip had put it there: its one file, and the entry point that names it."""
    home = tmp_path / "site"
    info = home / f"{NAME}-0.1.dist-info"
    info.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name(f"{NAME}.py"), home)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[specplan.methods]\n{NAME} = {NAME}:METHOD\n")
    monkeypatch.syspath_prepend(str(home))
    discover_methods.cache_clear()
    yield tmp_path
    discover_methods.cache_clear()
    sys.modules.pop(NAME, None)


@dataclass(frozen=True)
class Case:
    """A problem with the method, and where its models are."""

    path: Path
    models: dict[str, Path]


@pytest.fixture
def case(installed: Path) -> Case:
    """A target, two draft models that are near it, and a problem that names the method."""
    vocabulary = [*LETTERS, *("".join(pair) for pair in PAIRS)]
    models = {name: installed / name for name in ("target", *DRAFTS)}
    for layers, folder in zip((3, 2, 1), models.values(), strict=True):  # the target's first ones
        write_checkpoint(folder, vocabulary=vocabulary, merges=PAIRS, num_hidden_layers=layers)
    lines = [
        {"id": f"p{i}", "task": "code", "text": "abcdefg" * 3 + LETTERS[i] * 5} for i in range(8)
    ]
    (installed / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    problem: dict[str, Any] = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target", "dtype": "float64"},
            "drafts": [{"name": name, "path": name, "dtype": "float64"} for name in DRAFTS],
        },
        "device": "cpu-generic",
        "backend": INTERPRETER,
        "methods": ["autoregressive", NAME],
        "workload": {
            "batch_sizes": [1],
            "prompt_tokens": 12,
            "output_tokens": 16,
            "task": "code",
            "prompts": "prompts.jsonl",
        },
    }
    path = installed / "problem.yaml"
    path.write_text(yaml.safe_dump(problem))
    return Case(path, models)


def plans(case: Case) -> list[Plan]:
    """The plan of every setting."""
    facts = gather_facts(load_problem(case.path), profiles={})
    method: Any = discover_methods()[NAME]
    return [method.plan(facts, options) for options in method.settings(DRAFTS)]


def emitted(plan: Plan, case: Case, backend: str) -> list[tuple[int, ...]]:
    """What a plan makes of some prompts at temperature 0."""
    decoder = PlanDecoder(plan, {name: case.models[name] for name in plan.models_run}, backend)
    generation = decoder.generate(["abcabcab", "hgfedcba"], Settings(max_new_tokens=16))
    return [completion.tokens for completion in generation.completions]


def test_it_is_listed(installed: Path) -> None:
    listed = json.loads(specplan_here("methods", "--json").stdout)["methods"]
    assert [method["lossless"] for method in listed if method["name"] == NAME] == [True]
    assert NAME in specplan_here("methods").stdout


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_its_plans_verify_and_promise_the_targets_law(case: Case, temperature: float) -> None:
    text = case.path.read_text().replace(
        "batch_sizes", f"temperature: {temperature}\n  batch_sizes"
    )
    case.path.write_text(text)
    written = plans(case)
    assert len(written) == 4
    for plan in written:
        assert verify_plan(plan) == () and plan.assumptions.lossless
        assert plan.assumptions.temperature == temperature
        assert parse_plan(print_plan(plan)) == plan


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(
            "oracle", marks=pytest.mark.skipif("oracle" not in backend_names(), reason="")
        ),
        INTERPRETER,
        "static",
    ],
)
def test_they_decode_as_the_target_alone(case: Case, backend: str) -> None:
    plain = emitted(plain_plan(greedy=True), case, INTERPRETER)
    for plan in plans(case):
        assert emitted(plan, case, backend) == plain


def test_they_are_priced_by_their_own_rounds(case: Case) -> None:
    result = specplan.optimize(case.path)
    candidates = [one for one in result.candidates if one.method == NAME]
    assert len(candidates) == 4 and {one.plan for one in candidates} == set(plans(case))
    for candidate in candidates:
        assert candidate.estimate is not None
        assert candidate.estimate.tokens_per_round.mean > 1.0
