"""From a pilot to a head that is handed over, on a tiny target; trainings that end early."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.errors import SpecplanError, UsageError
from specplan.planner import load_problem
from specplan.planner.training.curves import Evaluation
from specplan.planner.training.stopping import StopRule, Verdict
from specplan.runtime.models.heads.drafter import Drafter
from specplan.training import evaluating
from specplan.training.hand_over import rounds_of
from specplan.training.learning.packing import Text
from specplan.training.recipe import Recipe
from specplan.training.train import hand_over_drafter, pilot_drafters, train_drafter
from specplan.training.trainer import train_head
from tests.measure.problems import write_problem

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target, four prompts that are held out, and eight to train on."""
    folder = tmp_path_factory.mktemp("problem")
    path = write_problem(folder, prompts=4, output_tokens=16, temperature=0.8)
    lines = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    train = [
        {**one, "id": f"t{i}", "text": one["text"][5:], "split": "train"}
        for i, one in enumerate(lines)
    ]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, [*lines, *train])))
    value = json.loads(path.read_text())
    value["models"]["drafts"] = []
    path.write_text(json.dumps(value | {"device": "cpu-generic", "sources": []}))
    return path


def test_pilot_train_and_hand_over(problem: Path, tmp_path: Path) -> None:
    pilots = pilot_drafters(problem, ["medusa", "eagle"], tmp_path, steps=50, learning_rate=0.01)
    assert {one.family for one in pilots} == {"medusa", "eagle"}
    assert pilots[0].speed.mean >= pilots[1].speed.mean > 0.0
    for one in pilots:
        state = json.loads((one.folder / "training.json").read_text())
        assert (state["recipe"]["rows"], state["recipe"]["learning_rate"]) == (2, 0.01)
        assert one.steps == state["step"] == 5 and one.budget == state["budget"] == 50
        assert one.speed.low <= one.speed.mean <= one.speed.high and one.seconds > 0.0
        assert all(0.0 <= rate.low <= rate.mean <= rate.high <= 1.0 for rate in one.rates)
    folder = tmp_path / "medusa"
    with pytest.raises(UsageError, match="holds no training"):
        hand_over_drafter(problem, "medusa", tmp_path)
    trained = train_drafter(problem, "medusa", folder, steps=50, learning_rate=0.01)
    assert trained.steps == 50 and len(trained.losses) == 45, "it goes on where the pilot was"
    done = hand_over_drafter(problem, "medusa", folder)
    assert done.prompts == 4 and done.rounds >= 4 * 6
    files = {path.name for path in done.folder.iterdir()}
    assert files == {"config.json", "model.safetensors", "acceptance.json", "README.md"}
    profile = AcceptanceProfile.load(done.folder / "acceptance.json")
    assert profile.evidence == done.profile.evidence
    text = (done.folder / "README.md").read_text()
    assert f"{done.rounds} rounds accepted as many" in text and "| 1 |" in text
    assert json.loads((done.folder / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_serving_that_differs_from_training_is_refused(
    problem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "medusa"
    train_drafter(problem, "medusa", folder, steps=1)
    monkeypatch.setattr("specplan.training.hand_over.rounds_of", lambda *_: [1, 2])
    with pytest.raises(
        SpecplanError, match=r"not served as it was trained: after prompt .* rounds emit"
    ):
        hand_over_drafter(problem, "medusa", folder)
    assert not (folder / "published/README.md").exists()


def test_rounds_of_a_text_by_its_ranks() -> None:
    """Ranks of five tokens at two depths; the first round of a text drafts nothing."""
    ranks = [(-1, -1), (0, -1), (0, 0), (2, 0), (0, 1)]
    assert rounds_of(ranks, 2) == [1, 3, 1]
    assert rounds_of(ranks, 1) == [1, 2, 1, 1]


class After:
    """Ends a training after some steps."""

    def __init__(self, steps: int) -> None:
        self.steps, self.seen = steps, list[int]()

    def due(self, steps: int) -> bool:
        return steps % 2 == 0

    def look(self, head: Drafter, steps: int) -> Evaluation:
        self.seen.append(steps)
        return Evaluation(steps, (10,), ((steps,),))

    def decide(self, evaluations: Sequence[Evaluation], save: Callable[[], None]) -> Verdict:
        steps = evaluations[-1].steps
        return Verdict(steps, 1.5, 0.01, 0.02, steps == self.steps)


def test_a_training_that_ends_early_cools_down_and_goes_on_bit_for_bit(
    problem: Path, tmp_path: Path
) -> None:
    from specplan.cost_models.models.new_heads import medusa_config
    from specplan.measure.workbench import Workbench

    target = Workbench(load_problem(problem)).models["target"]
    config = medusa_config(json.loads((problem.parent / "target/config.json").read_text()), "t")
    texts = [Text(tuple(range(5 + i, 25 + i)), 3) for i in range(8)]
    recipe = Recipe(rows=2, row_tokens=40, learning_rate=0.01, warmup=1, save_every=100)
    judge = After(4)
    whole = train_head(config, target, texts, 20, tmp_path / "whole", recipe, judge=judge)
    assert whole.steps == 5 and judge.seen == [2, 4, 5], "a quarter of four steps to cool"
    assert [one["stop"] for one in whole.verdicts] == [False, True]
    for until in (3, 4, None):
        train_head(
            config, target, texts, 20, tmp_path / "parts", recipe, judge=After(4), until=until
        )
    for name in ("model.safetensors", "optimizer.state", "training.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    again = train_head(config, target, texts, 20, tmp_path / "whole", recipe, judge=After(4))
    assert again.losses == () and again.steps == 5


def test_unseen_texts_are_looked_at_where_the_rule_says(problem: Path) -> None:
    judge = evaluating.HeldOut([], StopRule(100, 5), lambda: lambda _: 1.0)
    assert [step for step in range(1, 21) if judge.due(step)] == [5, 10, 15, 20]
    assert [s for s in range(1, 21) if replace(judge, points=frozenset({1, 3})).due(s)] == [1, 3]
    counted = Evaluation(5, (10,), ((5, 1),))
    assert judge.decide([counted], lambda: None).gain is None, "no curve has two points"
