"""A bundle's own plan is emitted where the engine can express it, without planning again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan import optimize
from specplan.backends.bundle import load_bundle
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.emitting.projecting import emit
from specplan.ir.errors import UsageError
from specplan.planner.drafters.profiles import acceptance_key
from tests.cli.test_program import specplan_here
from tests.planner.example_facts import workload


def bundle_of(pair: Path, folder: Path, hazards: Any, **changes: Any) -> Path:
    """A bundle for the tiny pair on a named device, with a ready profile of its draft model."""
    value: dict[str, Any] = {
        "schema_version": 1,
        "models": {
            "target": {"path": str(pair / "target"), "dtype": "float32"},
            "drafts": [{"name": "draft", "path": str(pair / "draft")}],
        },
        "device": "rtx-4090@transformers-eager",
        "methods": ["draft_model"],
        "workload": workload(batch_sizes=[1]),
        "acceptance": {"draft": str(folder / "draft.json")},
        **changes,
    }
    from specplan.planner.facts import gather_facts
    from specplan.planner.problem.loading import problem_from_dict

    bare = problem_from_dict(value | {"acceptance": {}})
    key = acceptance_key(bare, gather_facts(bare).shapes, Model("draft"))
    AcceptanceProfile.from_hazards(hazards, key=key, trials=5000).save(folder / "draft.json")
    optimize(value, out=folder / "bundle")
    return folder / "bundle"


def test_the_bundles_own_plan(pair_folder: Path, tmp_path: Path) -> None:
    folder = bundle_of(pair_folder, tmp_path, [[0.95]])
    bundle = load_bundle(folder)
    assert bundle.plan.name == "draft_model"
    projection = emit(folder, "transformers", out=tmp_path / "out")
    assert (
        projection.emitted.plan == bundle.plan
        and projection.ratio is None
        and not projection.refusals
    )
    document = json.loads((tmp_path / "out/projection.json").read_text(encoding="utf-8"))
    assert document["expressible"] is True
    chosen = bundle.report["candidates"][bundle.report["chosen"]]
    speeds = [e["tokens_per_second"] for e in chosen["estimates"]]
    assert [load["tokens_per_second"] for load in document["emitted"]["loads"]] == speeds
    assert document["emitted"]["speedup"] == bundle.report["explanation"]["speedup"]
    settings = json.loads((tmp_path / "out/generate.json").read_text(encoding="utf-8"))
    assert settings["assistant"] == str((pair_folder / "draft").resolve())


def test_a_bundle_that_the_engine_cannot_express(pair_folder: Path, tmp_path: Path) -> None:
    folder = bundle_of(pair_folder, tmp_path, [[0.5, 0.3, 0.19]], device="cpu-generic")
    bundle = load_bundle(folder)
    projection = emit(bundle, "vllm", out=tmp_path / "out")
    assert "tree" in projection.chosen.words and "tree" not in projection.emitted.words
    assert projection.chosen.plan == bundle.plan
    assert projection.ratio is not None and projection.ratio.mean < 1.0


def test_emitted_by_the_command(pair_folder: Path, tmp_path: Path) -> None:
    folder = bundle_of(pair_folder, tmp_path, [[0.95]])
    out = str(tmp_path / "out")
    done = specplan_here("emit", str(folder), "--engine", "vllm", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"]["name"] == "vllm"
    again = specplan_here("emit", str(folder), "--engine", "vllm@0.32", "--out", out)
    assert again.returncode == 0 and "vllm serve" in again.stdout
    unknown = specplan_here("emit", str(folder), "--engine", "vllm@0.1", "--out", out)
    assert unknown.returncode == 2 and "--any-version" in unknown.stderr
    listed = specplan_here("engines", "--json")
    assert {e["name"] for e in json.loads(listed.stdout)["engines"]} >= {"vllm", "transformers"}


def test_a_bundle_whose_sources_are_gone(pair_folder: Path, tmp_path: Path) -> None:
    folder = bundle_of(pair_folder, tmp_path, [[0.5, 0.3, 0.19]], device="cpu-generic")
    (tmp_path / "draft.json").unlink()
    with pytest.raises(UsageError, match=r"acceptance\.draft"):
        emit(folder, "vllm", out=tmp_path / "out")
