"""From a problem to a bundle whose trees follow the context: measured, chosen, run, lossless."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan import api  # noqa: E402
from specplan.cost_models.devices.measured.table import (  # noqa: E402
    ForwardRow,
    MeasuredTable,
    OpRow,
    PrefillRow,
    Provenance,
    RoundRow,
)
from specplan.cost_models.models.model_shape import ModelShape  # noqa: E402
from specplan.ir.errors import UsageError  # noqa: E402
from specplan.measure.device.probes import plain_plan  # noqa: E402
from specplan.measure.workbench import BENCH, Workbench  # noqa: E402
from specplan.planner import load_problem  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)
OPS = ("grow:best", "grow:draw", "grow:draw_distinct", "pick:best", "prune", "lookup", "accept")


def write_device(folder: Path) -> None:
    """A device on which the target takes 100 and the draft model 1 second a pass."""
    table = MeasuredTable("here", Provenance("x", "eager", 1, "2026-11-21", 1e12))
    for name, seconds in (("target", 100.0), ("draft", 1.0)):
        shape = ModelShape.from_folder(folder / name, "float64", name)
        about = {"model": shape.digest, "dtype": shape.dtype, "batch": 1}
        time = (seconds, 0.9 * seconds, 1.1 * seconds, 3)
        for tokens in (1, 64):
            table.add(PrefillRow(*time, tokens=tokens, **about))
            for context in (0, 200):
                table.add(ForwardRow(*time, tokens=tokens, context=context, **about))
    for op in OPS:
        table.add(OpRow(0.1, 0.1, 0.1, 3, op=op, batch=1, width=1))
    table.add(RoundRow(0.1, 0.1, 0.1, 3, batch=1))
    table.save(folder / "device.json")


@pytest.mark.parametrize("temperature", [0.0, 0.2])
def test_a_dynamic_tree_is_measured_chosen_and_run(temperature: float, tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=4, temperature=temperature)
    write_device(tmp_path)
    problem = json.loads(path.read_text()) | {"device": "./device.json"}
    rivals = ["draft_model", "dynamic_tree", "prompt_lookup"]
    path.write_text(json.dumps(problem | {"methods": rivals}))
    every = api.optimize(path)
    kinds = {c.method for c in every.search.candidates if c.admissible}
    assert set(rivals) <= kinds
    path.write_text(json.dumps(problem | {"methods": ["dynamic_tree"]}))
    result = api.optimize(path, out=tmp_path / "bundle")
    chosen = result.search.chosen
    assert chosen.method == "dynamic_tree" and chosen.unsupported is None
    assert result.search.speedup.low > 1.0
    assert result.bundle is not None and chosen.words in api.explain(result.bundle)
    bench = Workbench(load_problem(path))
    prompts = bench.prompts(BENCH)
    if temperature == 0.0:
        requests = [Request(prompt_tokens=p.tokens, max_new_tokens=24) for p in prompts]
        mine = [c.tokens for c in generate(bench.compile(result.plan), requests).completions]
        plain = generate(bench.compile(plain_plan(True)), requests).completions
        assert mine == [c.tokens for c in plain]
    ran = api.generate(tmp_path / "bundle", ["def f(x):", "import os"])
    assert all(len(completion.tokens) > 0 for completion in ran.completions)


def test_a_device_that_knows_no_passes_without_blocks_refuses_their_methods(tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=4)
    write_device(tmp_path)
    asked = {"device": "./device.json", "methods": ["autoregressive", "layer_skip"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | asked))
    with pytest.raises(UsageError, match="cannot be tried: no set of blocks is known"):
        api.optimize(path)
