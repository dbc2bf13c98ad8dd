"""Heads of a problem are timed on this machine by the plans that draft with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.acceptance.drafters import Drafter, Fallback, Model  # noqa: E402
from specplan.cost_models.acceptance.fits.assumed import assume_rate  # noqa: E402
from specplan.cost_models.acceptance.profile import AcceptanceProfile  # noqa: E402
from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.cost_models.devices.measured.compiled import compiled_by  # noqa: E402
from specplan.measure.device import compiled  # noqa: E402
from specplan.measure.device import time_probe as times  # noqa: E402
from specplan.measure.device.coverage import ANY_FALLBACK  # noqa: E402
from specplan.measure.device.profile import measure_device  # noqa: E402
from specplan.measure.workbench import Workbench  # noqa: E402
from specplan.planner import acceptance_key, gather_facts, load_problem, search  # noqa: E402
from tests.benchmarks.fake_backend import Fake  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402
from tests.runtime.heads import formats  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def short_probes() -> Iterator[None]:
    """And rounds run as graphs, eagerly, where a compiler would take its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "EMITTED", 4)
        patch.setattr(compiled, "round_backend", lambda _: Fake())
        yield


def test_every_setting_of_a_head_has_a_measured_price(tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=2, output_tokens=8)
    size = json.loads((tmp_path / "target/config.json").read_text())["vocab_size"]
    layers = {"eagle_aux_hidden_state_layer_ids": [1, 2]}
    heads = {
        "eagle": formats.eagle3(reads=2, size=size, reduced=False, **layers),
        "medusa": formats.medusa(size=size),
    }
    problem = json.loads(path.read_text())
    drafts = [{"name": name, "path": name, "dtype": "float64"} for name in heads]
    problem["models"]["drafts"] = drafts
    methods = {"eagle3", "parallel_heads", "lookup_or_draft"}
    problem |= {"methods": sorted(methods), "sources": ["prompt_lookup"]}
    path.write_text(json.dumps(problem))
    for name, stored in heads.items():
        stored.save(tmp_path / name)
    bench = Workbench(load_problem(path))
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    device = measure_device(bench, facts, passes=1, compilers=("onnxruntime",))
    runs = {run.probe: run for run in device.table.compiled["onnxruntime"]}
    for name, method in {"eagle": "eagle3", "medusa": "parallel_heads"}.items():
        shape = facts.shape(name)
        ends = [run for probe, run in runs.items() if probe.startswith(f"{method}: ")]
        few, *_, many = (
            [one.count for one in run.passes if one.model == shape.digest] for run in ends
        )
        assert compiled_by(device, "onnxruntime").forward_seconds(shape, 1, 1, 8).median > 0.0
        assert few and many and sum(few) <= sum(many), "from the shortest chain to the largest tree"
        assert ends[0].moves == 0.0 < ends[-1].moves
    profiles: dict[Drafter, AcceptanceProfile] = {
        Model(name): assume_rate(0.7, acceptance_key(bench.problem, facts.shapes, Model(name)))
        for name in heads
    }
    behind = Fallback("text", "eagle")
    key = acceptance_key(bench.problem, facts.shapes, behind)
    profiles[behind] = AcceptanceProfile(key, ANY_FALLBACK)
    answer = search(replace(facts, device=device, profiles=profiles))
    by_method: dict[str, int] = {}
    for candidate in answer.candidates:
        if candidate.drafter in profiles:
            assert candidate.estimate is not None, (candidate.words, candidate.refusal)
            by_method[candidate.method] = by_method.get(candidate.method, 0) + 1
    assert set(by_method) == methods and min(by_method.values()) > 2
    last = facts.longest_text - 1  # the longest context that a pass of this problem reads
    for name in heads:
        assert not device.forward_seconds(facts.shape(name), 1, 1, last).extrapolated
