"""Packed, chunked and remembered: a step's loss and gradients are those of the plain formula."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specplan.cost_models.models.heads.clover import clover_config
from specplan.cost_models.models.heads.eagle import fspad_config
from specplan.cost_models.models.heads.states_as_keys import chimera_config
from specplan.cost_models.models.new_heads import (
    dflash_config,
    eagle3_config,
    eagle_config,
    medusa_config,
)
from specplan.ir.errors import UsageError
from specplan.measure.acceptance.heads import text_features
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import unrolled, unrolled_states
from specplan.runtime.models.loading import load_model
from specplan.training.learning.features import Features
from specplan.training.learning.heads import HeadLearner
from specplan.training.learning.objective import Objective, loss_of
from specplan.training.learning.packing import Text, labels_of, packed, rows_of
from specplan.training.losses import LOSSES, target_probabilities
from specplan.training.new_heads import SPREAD, new_head, size_of_states
from specplan.training.recipe import Recipe
from specplan.training.trainer import train_head
from tests.measure.problems import write_problem

WEIGHTS = (1.0, 0.8, 0.64)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> CausalModel:
    folder = tmp_path_factory.mktemp("problem")
    write_problem(folder, prompts=1, output_tokens=4)
    return load_model(folder / "target", dtype="float64")


def head_of(target: CausalModel, family: str, folder: Path) -> Drafter:
    config = json.loads((folder / "config.json").read_text())
    if family == "dflash":
        flash = dflash_config(config, "target", layers=1, block=4)
        flash["dflash_config"]["target_layer_ids"] = [0, 1]
        return new_head(flash, target, 0)
    if family == "medusa":
        return new_head(medusa_config(config, "target", heads=3), target, 0)
    made = eagle3_config(config, "target", vocabulary=48)
    return new_head(made | {"eagle_aux_hidden_state_layer_ids": [1, 2]}, target, 0, [range(40, 88)])


def texts_of(sizes: tuple[int, ...]) -> list[Text]:
    generator = torch.Generator().manual_seed(1)
    drawn = (torch.randint(30, 90, (size,), generator=generator) for size in sizes)
    return [Text(tuple(one.tolist()), 3) for one in drawn]


def plainly(
    head: Drafter, texts: list[Text], loss: str, temperature: float, answers: bool
) -> torch.Tensor:
    """The same by whole logits, a text at a time."""
    sums, counts = torch.zeros(3).double(), torch.zeros(3)
    known, target = head.outputs.tokens, head.target
    for text in texts:
        tokens = torch.tensor([text.tokens])
        last = text_features(target, Texts.alone(tokens), (target.num_layers,))
        reads = head.description.reads.layers or (target.num_layers,)
        features = text_features(target, Texts.alone(tokens), reads)
        wanted = target_probabilities(target.rows(last, "logits", None)[0], temperature, known)
        if temperature == 0.0 and answers:
            labels = torch.tensor([*text.tokens[1:], 0])
            wanted = torch.nn.functional.one_hot(labels, head.vocab_size).double()
            wanted = wanted if known is None else wanted[:, known]
        for step, logits in enumerate(unrolled(head, tokens, features, 3)):
            own = logits[0] if known is None else logits[0][:, known]
            for root in range(head.description.begins, len(text.tokens) - 1 - step):
                if root + step + 1 >= text.start:
                    row = own[root][None], wanted[root + step][None]
                    sums[step] = sums[step] + LOSSES[loss](*row)[0]
                    counts[step] += 1
    return (sums / counts * torch.tensor(WEIGHTS)).sum()


@pytest.mark.parametrize("family", ["eagle3", "medusa", "dflash"])
@pytest.mark.parametrize(
    ("loss", "temperature", "answers"),
    [("ce", 0.0, True), ("lk", 0.7, True), ("ce", 0.0, False)],
)
def test_packed_rows_in_chunks_are_separate_texts(
    target: CausalModel, family: str, loss: str, temperature: float, answers: bool, tmp_path: Path
) -> None:
    """Line by line the loss of texts side by side, with gradients, is the mean over texts alone."""
    folder = write_problem(tmp_path, prompts=1, output_tokens=4).parent / "target"
    head = head_of(target, family, folder)
    texts = texts_of((9, 14, 6, 20))
    plain = plainly(head, texts, loss, temperature, answers)
    plain.backward()
    wanted = {name: weight.grad for name, weight in head.named_parameters()}
    head.zero_grad()
    groups = packed(texts, 30)
    assert [[len(text.tokens) for text in group] for group in groups] == [[20, 9], [14, 6]]
    for chunk in (1, 10**9):
        objective = Objective(loss, WEIGHTS, temperature, torch.float64, chunk, answers)
        rows, features = Features(HeadLearner(head), groups, objective).rows([0, 1])
        labels = labels_of(rows, 3, head.description.begins)
        packed_loss = loss_of(HeadLearner(head), rows, labels, features, objective)
        torch.testing.assert_close(packed_loss, plain.detach())
        for name, weight in head.named_parameters():
            torch.testing.assert_close(weight.grad, wanted[name], msg=name)
        head.zero_grad()


ALIGNED = {
    "eagle": eagle_config,
    "fspad": fspad_config,
    "clover2": clover_config,
    "chimera": chimera_config,
}


@pytest.mark.parametrize("family", ALIGNED)
def test_aligned_states_are_the_targets_own_at_the_token_before_the_label(
    target: CausalModel, family: str, tmp_path: Path
) -> None:
    """Packed and in chunks as text by text; without the part there is nothing of it."""
    folder = write_problem(tmp_path, prompts=1, output_tokens=4).parent / "target"
    config = json.loads((folder / "config.json").read_text())
    head, texts = new_head(ALIGNED[family](config, "target"), target, 0), texts_of((9, 14, 6))
    learner, sums, counts = HeadLearner(head), torch.zeros(3).double(), torch.zeros(3)
    for text in texts:
        alone = Texts.alone(torch.tensor([text.tokens]))
        features = text_features(target, alone, (target.num_layers,))
        true = target.family.finish(features)[0]
        roots = torch.arange(len(text.tokens))[None]
        for step, states in enumerate(unrolled_states([head], alone, features, 3, roots)):
            own = learner.aligned(states[0], step)
            for root in range(max(1, text.start - step - 1), len(text.tokens) - 1 - step):
                away = (own[root] - true[root + step]).abs()
                sums[step] += torch.where(away < 1, away**2 / 2, away - 0.5).mean().detach()
                counts[step] += 1
    plain = (sums / counts * torch.tensor(WEIGHTS)).sum()

    def loss(text: str, chunk: int) -> torch.Tensor:
        objective = Objective(text, WEIGHTS, 0.7, torch.float64, chunk)
        rows, features = Features(learner, packed(texts, 30), objective).rows([0])
        return loss_of(learner, rows, labels_of(rows, 3, 1), features, objective)

    for chunk in (1, 10**9):
        difference = loss("1*ce+2*state", chunk) - loss("ce", chunk)
        torch.testing.assert_close(difference, 2 * plain)
    with pytest.raises(UsageError, match="states that approximate the target's"):
        learner = HeadLearner(head_of(target, "medusa", folder))
        loss("ce+1*state", 1)


def test_states_are_the_same_bits_whatever_is_remembered(
    target: CausalModel, tmp_path: Path
) -> None:
    folder = write_problem(tmp_path, prompts=1, output_tokens=4).parent / "target"
    head = head_of(target, "eagle3", folder)
    groups = packed(texts_of((9, 14, 6, 20)), 30)
    objective = Objective("ce", WEIGHTS, 0.7, torch.float64)
    learner = HeadLearner(head)
    known, none = Features(learner, groups, objective), Features(learner, groups, objective, 0)
    first = known.rows([0, 1])[1]
    assert len(known.known) == 2 and not none.known
    assert torch.equal(known.rows([0, 1])[1], first) and torch.equal(none.rows([0, 1])[1], first)
    assert torch.equal(none.rows([1])[1][0], first[1, :20])
    greedy = Features(learner, groups, replace(objective, temperature=0.0))
    assert greedy.rows([0])[1].shape[2] == first.shape[2] - target.hidden_size


def test_a_label_is_an_answers_token_in_the_same_text() -> None:
    """Two texts in a row, prompts 2 and 1 tokens, looked at from one and two tokens before."""
    rows = rows_of([[Text((1, 2, 3), 2), Text((4, 5, 6), 1)]])
    assert rows.texts.positions.tolist() == [[0, 1, 2, 0, 1, 2]]
    labels = labels_of(rows, 2, 0)
    assert labels.roots.tolist() == [[0, 1, 3, 4]]
    assert labels.counts[0].tolist() == [[False, True, True, True]]
    assert labels.counts[1].tolist() == [[True, False, True, False]]
    later = labels_of(rows, 1, 1)
    assert later.roots.tolist() == [[1, 4]] and later.counts.all()
    assert packed([Text((1,) * 50, 0)], 20)[0][0].start == 0, "a long text has a row of its own"


def test_large_states_are_projected_to_the_size_of_what_is_learned(
    target: CausalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step of Adam changes a weight by its learning rate."""
    embed, texts = target.family.embed, texts_of((24, 30))
    monkeypatch.setattr(target.family, "embed", lambda *one: 500.0 * embed(*one))
    write_problem(tmp_path, prompts=1, output_tokens=4)
    config = eagle3_config(json.loads((tmp_path / "target/config.json").read_text()), "target")
    config["eagle_aux_hidden_state_layer_ids"] = [1, 2]
    head = new_head(config, target, 0, [text.tokens for text in texts])
    states = text_features(target, Texts.alone(torch.tensor([texts[0].tokens])), (1, 2))
    size = size_of_states(head, texts[0].tokens)
    assert size == pytest.approx(states.square().mean().sqrt().item()) and size > 5.0
    assert head.entering.project is not None
    entered = head.entering.project(states).square().mean().sqrt().item()
    assert entered == pytest.approx(SPREAD * states.shape[-1] ** 0.5, rel=0.2)
    recipe = Recipe(rows=2, learning_rate=0.01, warmup=1, head_rate=0.25, clip=1e9, answers=False)
    learned = train_head(config, target, texts, 1, tmp_path / "head", recipe).drafter
    before = head.weights_by_name()
    for name, rate in (("project.weight", 1 / size), ("heads.0.weight", 0.25), ("norm.weight", 1)):
        change = (learned.weights_by_name()[name] - before[name]).abs().max().item()
        assert change == pytest.approx(0.01 * rate, rel=1e-3), name
