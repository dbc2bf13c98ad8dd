"""A draft model that learns while it serves: fresher drafts, the same texts, bounded memory."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
import torch
import transformers

from specplan.backends.registry import get_backend
from specplan.cost_models.devices.device import load_device
from specplan.ir.rules.verify import check_plan
from specplan.ir.text.printer import print_plan
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import gather_facts, load_problem
from specplan.planner.methods.draft_model import METHOD, DraftModelOptions
from specplan.planner.trees import chain
from specplan.runtime.generate import generate
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.training.drafts.distilling import DistillRecipe, DraftLearner
from specplan.training.drafts.online import FreshDraft, Replay, Served, live
from specplan.training.learning.packing import Text
from tests.measure.problems import write_problem

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """A problem whose draft model was not trained for the traffic."""
    folder = tmp_path_factory.mktemp("problem")
    path = write_problem(folder, prompts=8, output_tokens=16)
    draft = transformers.LlamaForCausalLM.from_pretrained(folder / "draft")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += 0.15 * weight.std() * torch.randn(weight.shape, generator=generator)
    draft.save_pretrained(folder / "draft")
    return Workbench(load_problem(path))


def fresh_draft(bench: Workbench, every: int = 4) -> tuple[FreshDraft, list[Request]]:
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    plan = live(METHOD.plan(facts, DraftModelOptions.of("draft", chain(3))), "draft")
    folder = bench.problem.models.drafts[0].path
    served, target = load_model(folder, dtype="float64"), bench.models["target"]
    recipe = DistillRecipe(learning_rate=0.01, temperature=1.0, loss="kl")
    executable = get_backend("eager").compile(plan, {"target": target, "draft": served})
    learner = DraftLearner(folder, target, recipe)
    requests = [bench.request(prompt, 0) for prompt in bench.prompts(PROFILE)]
    return FreshDraft(executable, served, learner, every=every), requests


def test_what_was_rejected_is_learned_and_accepted_later(start: Workbench, tmp_path: Path) -> None:
    fresh, requests = fresh_draft(start)
    check_plan(fresh.executable.plan)
    assert "revision=live" in print_plan(fresh.executable.plan)
    assert fresh.learn() is None, "nothing was served yet"
    before = fresh.generate(requests)
    rejections = sum(len(one.rejected) for one in fresh.replay.texts)
    assert 0 < rejections <= before.rounds * len(requests)
    losses = [fresh.learn() for _ in range(15)]
    assert losses[-1] is not None and losses[0] is not None and losses[-1] < 0.7 * losses[0], losses
    after = fresh.generate(requests)
    print(before.tokens_per_round, after.tokens_per_round)
    assert [one.tokens for one in after.completions] == [one.tokens for one in before.completions]
    assert after.tokens_per_round > before.tokens_per_round + 0.3
    fresh.save(tmp_path / "fresh")
    saved = load_model(tmp_path / "fresh", dtype="float64").weights()
    for name, weight in fresh.served.weights().items():
        torch.testing.assert_close(saved[name], weight, rtol=1e-6, atol=1e-6)


def test_learning_beside_serving_pauses_for_less_than_a_round(start: Workbench) -> None:
    fresh, requests = fresh_draft(start)
    with fresh:
        for _ in range(6):
            done = fresh.generate(requests[:4])
    assert fresh.steps > 0 and fresh.pauses
    assert median(fresh.pauses) < done.seconds_per_round
    plain = generate(fresh.executable, requests[:4])
    assert [x.tokens for x in plain.completions] == [x.tokens for x in done.completions]


def test_memory_of_texts_is_bounded_and_the_oldest_give_way() -> None:
    replay = Replay(capacity=100)
    for number in range(1000):
        replay.add(Served(Text((number,) * 30, 10), (12,)))
    assert replay.tokens == 90 and [one.text.tokens[0] for one in replay.texts] == [997, 998, 999]
    replay.add(Served(Text((7,) * 30, 10), ()))
    replay.add(Served(Text((7,) * 101, 10), (12,)))
    assert replay.texts[-1].text.tokens[0] == 999, "accepted throughout, or too long"
    assert [one.text.tokens[0] for one in replay.latest(60)] == [999, 998]
    assert len(replay.latest(1)) == 1
