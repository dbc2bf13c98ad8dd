"""A target whose layers are read in every pass emits the tokens of one in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.backends.bundle import write_bundle
from specplan.backends.bundle_executable import load_models, open_executable
from specplan.bundles.compiling import compile_bundle
from specplan.cost_models.placement import streamed_layers
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.measure.device.probes import exit_probes, probes
from specplan.planner.methods.large_tree import METHOD, LargeTreeOptions
from specplan.runtime.generate import generate
from specplan.runtime.models.loading import load_model
from specplan.runtime.models.streamed import streamed_of
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, plain, run
from tests.planner.example_facts import example_facts

NAMES = (
    "chain 3 by draft",
    "bush 4 by draft",
    "beam 4 of 6 layers by draft",
    "chain 8 after layer 1",
)


def plans(folder: Path, greedy: bool) -> dict[str, Plan]:
    """Chains, bushes, a beam, lower layers that draft, and a large tree judged along draws."""
    every = [*probes(["draft"], greedy, 61), *exit_probes([1], 3, greedy)]
    chosen = {probe.name: probe.plan for probe in every if probe.name in NAMES}
    facts = example_facts(folder, temperature=0.0 if greedy else 0.8, methods=["large_tree"])
    large = METHOD.plan(facts, LargeTreeOptions("draft", 64, 16, 4, 6))
    return {**chosen, "large tree": large}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_are_those_of_the_target_in_memory(
    pair_folder: Path, tmp_path: Path, temperature: float
) -> None:
    whole = load_pair(pair_folder)
    placed = {**whole, "target": load_model(pair_folder / "target", dtype="float64", streamed=3)}
    assert streamed_of(placed["target"]) is not None and streamed_of(whole["target"]) is None
    requests = [
        Request(
            prompt_tokens=tuple(range(row, row + 9)), max_new_tokens=24, temperature=temperature,
            seed=row,
        )
        for row in range(3)
    ]  # fmt: skip
    every = plans(tmp_path, temperature == 0.0)
    assert len(every) >= 4
    for name, plan in every.items():
        assert run(plan, placed, requests) == run(plan, whole, requests), name


def test_a_bundle_reads_the_layers_that_its_problem_places(
    pair_folder: Path, tmp_path: Path
) -> None:
    folder = pair_folder / "target"
    problem = {
        "schema_version": 1,
        "models": {"target": {"path": str(folder), "placement": {"link": "disk", "layers": 3}}},
        "workload": {"batch_sizes": [1], "prompt_tokens": 8, "output_tokens": 8},
    }
    bundle = write_bundle(
        tmp_path / "bundle", plan=plain(), problem=problem, report={"candidates": []},
        models={"target": (folder, "float64")}, backend="eager", versions={"specplan": "0"},
    )  # fmt: skip
    assert streamed_layers(bundle.problem) == {"target": 3}
    models = load_models(bundle)
    assert streamed_of(models["target"]) is not None
    request = Request(prompt_tokens=(1, 2, 3), max_new_tokens=8)
    ran = generate(open_executable(bundle, models), [request])
    assert [ran.completions[0].tokens] == run(plain(), load_pair(pair_folder), [request])
    with pytest.raises(UsageError, match="which a compiled round does not do"):
        compile_bundle(bundle)
