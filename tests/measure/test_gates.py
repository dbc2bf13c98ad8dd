"""Gates measured from attention, against the weights that stock models give; in a whole run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

import specplan
from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.devices.device import load_device
from specplan.ir.errors import UsageError
from specplan.measure.acceptance.profile import measure_acceptance
from specplan.measure.workbench import Workbench
from specplan.planner import gather_facts, load_problem
from specplan.planner.drafters.gates import read_gates
from specplan.planner.methods.retrieval_heads import METHOD
from specplan.runtime.models.cache_parts import by_head
from specplan.runtime.models.loading import load_model
from tests.measure.problems import write_problem
from tests.runtime.tiny_models import save_tiny


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_attention_outside_is_that_of_the_stock_model(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean over query heads of what goes to neither the first token, the latest nor itself."""
    monkeypatch.setattr(by_head, "CHUNK", 16)  # several chunks
    folder = save_tiny(family, tmp_path / "target")
    model = load_model(folder, dtype="float64")
    text = [(7 * i * i + 3) % 61 for i in range(45)]
    outside, counted = by_head.attention_outside(model, text, budget=3, sink=1)
    assert counted == 45 - 1 - 3
    stock = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64
    )
    weights = stock(torch.tensor([text]), output_attentions=True).attentions
    far = [[1 <= key < place - 2 for key in range(45)] for place in range(45)]
    for layer, given in enumerate(weights):
        shares = (given[0] * torch.tensor(far)).sum((1, 2))
        expected = shares.unflatten(0, (model.family.kv_heads, -1)).mean(1)
        assert torch.allclose(outside[layer].double(), expected, atol=1e-4)
    assert outside.sum() > 0


def test_gates_are_measured_named_and_drafted_with(tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=2)
    out = specplan.profile_gates(path, tmp_path / "gates.tsv", budget=16)
    more = {"methods": ["retrieval_heads"], "gates": "gates.tsv"}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    bench = Workbench(load_problem(path))
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    gates = read_gates(out, facts.target)
    assert all(0 < gate < 1 for layer in gates for gate in layer)
    wanted = [one for one in METHOD.drafters(facts) if isinstance(one, SmallCache)][:1]
    profiles = measure_acceptance(bench, facts, wanted=wanted)
    assert isinstance(profiles[wanted[0]].evidence, Lengths)
    with pytest.raises(UsageError, match="longer than 500 tokens"):
        specplan.profile_gates(path, tmp_path / "gates.tsv", budget=500)
