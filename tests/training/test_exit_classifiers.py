"""Exits of the target: classifiers and policies, trained, resumed, read by plans."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

import specplan
from specplan.gathering import open_bench
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import verify_plan
from specplan.measure.acceptance.exit_traces import layer_traces
from specplan.measure.acceptance.teacher import TracedText
from specplan.planner.drafters.trained_exits import read_trained_exits
from specplan.planner.methods.confident_exit import METHOD
from specplan.planner.problem.loading import load_problem
from specplan.planner.templates.exits import exit_depths
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.training.learning.exits import (
    Classifiers,
    ExitLearner,
    ExitRecipe,
    Judged,
    judged,
    policy_loss,
    rewards_of,
)
from specplan.training.learning.objective import Objective
from specplan.training.learning.packing import Text
from specplan.training.trainer import Trained, train_learner
from tests.backends.pairs import load_pair, save_pair
from tests.measure.problems import write_problem

torch.set_num_threads(1)
LAYERS = (1, 2)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> CausalModel:
    folder = tmp_path_factory.mktemp("target")
    save_pair(folder, 13, layers=4, sureness=4.0)
    return load_pair(folder, dtype="float32")["target"]


def texts(count: int = 6) -> list[Text]:
    return [Text(tuple((7 * i + j * j) % 13 for j in range(30)), 4) for i in range(count)]


def trained(
    target: CausalModel, kind: str, folder: Path, steps: int, until: int | None = None
) -> Trained:
    recipe = ExitRecipe(learning_rate=0.02, rows=2, row_tokens=60, warmup=1)
    learner = ExitLearner(kind, LAYERS, target, recipe)
    objective = Objective("ce", (1.0,), 0.0, target.dtype, answers=False)
    return train_learner(learner, objective, texts(), steps, folder, recipe, until=until)


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["classifier", "policy"])
def test_a_training_goes_on_exactly_where_it_was(
    kind: str, target: CausalModel, tmp_path: Path
) -> None:
    whole = trained(target, kind, tmp_path / "whole", 40)
    trained(target, kind, tmp_path / "parts", 40, until=13)
    rest = trained(target, kind, tmp_path / "parts", 40)
    assert len(rest.losses) == 27 and rest.losses == whole.losses[13:]
    assert weights_of(tmp_path / "parts") == weights_of(tmp_path / "whole")
    with pytest.raises(UsageError, match="differs in its exits"):
        other = {"classifier": "policy", "policy": "classifier"}[kind]
        trained(target, other, tmp_path / "whole", 40)
    if kind == "classifier":
        assert sum(whole.losses[-5:]) < 0.9 * sum(whole.losses[:5])


def numbers(target: CausalModel, drafter: Classifiers) -> tuple[Tensor, Judged]:
    """Probabilities of the exits, and what is true of them, at every token that is learned."""
    states = []
    for text in texts():
        ids = torch.tensor([text.tokens])
        places, size = torch.arange(ids.shape[1])[None], ids.shape[1]
        mask = torch.ones(1, size, size, dtype=torch.bool).tril()
        for n in (*LAYERS, 4):
            cache = target.new_cache(1, size + 1)
            states.append(target.hidden(ids, places, places, mask, cache, (0, n))[0, 3:-1])
    joined = torch.cat([torch.cat(states[i : i + 3], -1) for i in range(0, len(states), 3)])
    split = joined.unflatten(-1, (3, -1))[:, :-1]
    return drafter(split).sigmoid().detach(), judged(target, joined)


def test_classifiers_learn_what_they_are_told(target: CausalModel, tmp_path: Path) -> None:
    """Tokens whose exit is right get higher numbers; right is what traces say."""
    drafter = trained(target, "classifier", tmp_path / "exits", 150).drafter
    sure, known = numbers(target, drafter)
    for column in range(len(LAYERS)):
        right, numbers_there = known.same[:, column], sure[:, column]
        assert 0 < right.sum() < len(right)
        assert numbers_there[right].mean() > numbers_there[~right].mean() + 0.1
    prompt, output = texts()[0].tokens[:4], texts()[0].tokens[4:]
    request = Request(prompt_tokens=prompt, max_new_tokens=len(output))
    traces = layer_traces(TracedText(0, "t", request, output, target), (*LAYERS, 4))
    rights = torch.stack([traces[n].first == traces[4].first for n in (*LAYERS, 4)], 1)
    assert torch.equal(known.same[: len(rights)], rights)


def test_a_policy_gains_reward(target: CausalModel, tmp_path: Path) -> None:
    """What its visits are worth on average rises, and its exits differ from token to token."""
    layers, begun = (*LAYERS, 4), Classifiers(target, len(LAYERS))
    drafter = trained(target, "policy", tmp_path / "exits", 200).drafter
    worth = []
    for one in (begun, drafter):
        leaves, known = numbers(target, one)
        first, second = leaves.unbind(-1)
        chances = torch.stack([first, (1 - first) * second, (1 - first) * (1 - second)], -1)
        worth.append(float((chances * rewards_of(known, layers, 0.6)).sum(-1).mean()))
    assert worth[1] > worth[0] + 0.1


def test_rewards_are_the_papers() -> None:
    """-CE - price · depth · (1 - memorized layer): the layer from which on all exits agree."""
    losses = torch.tensor([[0.1, 0.2, 0.3], [1.0, 2.0, 0.5], [3.0, 0.1, 0.2]])
    same = torch.tensor([[True, True, True], [True, False, True], [False, True, True]])
    rewards = rewards_of(Judged(losses, same), (2, 4, 8), 0.8)
    depths, memorized = torch.tensor([0.25, 0.5, 1.0]), torch.tensor([0.25, 1.0, 0.5])
    torch.testing.assert_close(rewards, -losses - 0.8 * depths * (1 - memorized)[:, None])


def test_the_policy_gradient_is_that_of_the_expected_reward() -> None:
    """The mean over all outcomes of four visits, each with its probability.

    What a visit is worth is compared with the mean of all four, its own among them, so that a
    quarter of the gradient is lost.
    """
    logits = torch.tensor([[0.3, -0.4]], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([[-1.0, -0.2, 0.5]], dtype=torch.float64)
    first, second = logits.sigmoid()[0]
    expected = first * rewards[0, 0] + (1 - first) * (
        second * rewards[0, 1] + (1 - second) * rewards[0, 2]
    )
    (wanted,) = torch.autograd.grad(expected, logits, retain_graph=True)
    chances = [x.item() for x in (first, (1 - first) * second, (1 - first) * (1 - second))]
    numbers_of = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0))  # leave at the first, the second, nowhere
    total = torch.zeros_like(wanted)
    for visits in product(range(3), repeat=4):
        drawn = torch.tensor([[numbers_of[one]] for one in visits], dtype=torch.float64)
        chance = torch.tensor([chances[one] for one in visits]).prod()
        (gradient,) = torch.autograd.grad(
            policy_loss(logits, rewards, drawn), logits, retain_graph=True
        )
        total -= chance * gradient
    torch.testing.assert_close(total, 0.75 * wanted, rtol=1e-6, atol=1e-9)


def test_a_problem_trains_and_names_them(tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=3, output_tokens=10)
    lines = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    more = [{**one, "id": f"t{i}", "split": "train", "text": one["text"][5:]}
            for i, one in enumerate(lines)]  # fmt: skip
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, [*lines, *more])))
    done = specplan.train_exits(path, "classifier", tmp_path / "exits", steps=3, rows=2)
    assert len(done.losses) == 3
    data = json.loads(path.read_text()) | {"exit_classifier": "exits"}
    path.write_text(json.dumps(data))
    problem = load_problem(path)
    assert problem.exit_classifier == tmp_path / "exits"
    _, facts = open_bench(problem)
    trained_ones = read_trained_exits(tmp_path / "exits", "classifier", facts.target)
    assert trained_ones.layers == exit_depths(facts.target.num_layers)
    weights = [trained_ones.exits[layer][0] for layer in trained_ones.layers]
    torch.testing.assert_close(torch.tensor(weights), done.drafter.weights.detach().cpu())
    settings = [one for one in METHOD.run_settings(facts) if one.measure == "classifier"]
    assert settings and not verify_plan(METHOD.plan(facts, settings[0]))
    with pytest.raises(UsageError, match="no trained exits of the kind policy"):
        read_trained_exits(tmp_path / "exits", "policy", facts.target)
    with pytest.raises(UsageError, match="the target has states of 8 numbers"):
        read_trained_exits(tmp_path / "exits", "classifier", replace(facts.target, hidden_size=8))
    with pytest.raises(UsageError, match='no exits are called "table"'):
        specplan.train_exits(path, "table", tmp_path / "other")
    with pytest.raises(UsageError, match="depth_price is for policies"):
        specplan.train_exits(path, "classifier", tmp_path / "other", depth_price=1.0)
