"""Adapters on the target's first layers are trained by the same command, and served as trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specplan.ir.errors import UsageError
from specplan.training.train import hand_over_drafter, size_vocabulary, train_drafter
from tests.measure.problems import write_problem

torch.set_num_threads(1)


@pytest.mark.parametrize("family", ["kangaroo", pytest.param("exit_layer", marks=pytest.mark.long)])
def test_an_exit_is_trained_and_served_as_it_was_trained(family: str, tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=4, output_tokens=12)
    lines = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    more = [{**one, "id": f"t{i}", "split": "train"} for i, one in enumerate(lines)]
    shifted = [{**one, "text": one["text"][5:]} for one in more]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, [*lines, *shifted])))
    value = json.loads(path.read_text()) | {"device": "cpu-generic", "sources": []}
    path.write_text(json.dumps(value))
    folder = tmp_path / family
    if family == "kangaroo":  # the same problem serves
        sizes = size_vocabulary(path, "eagle3", tmp_path / "eagle3")
        chosen = json.loads((tmp_path / "eagle3/config.json").read_text())["draft_vocab_size"]
        assert chosen == sizes[0].tokens and {1.0} == {max(one.coverage for one in sizes)}
        with pytest.raises(UsageError, match="vocabulary of medusa is the target's"):
            size_vocabulary(path, "medusa")
    first = train_drafter(path, family, folder, steps=12, learning_rate=0.02, rows=4)
    assert first.losses[-1] < first.losses[0]
    judged = train_drafter(path, family, tmp_path / "judged", steps=4, worth=1e-6)
    assert len(judged.evaluations) == 4 and judged.verdicts
    config = json.loads((folder / "config.json").read_text())
    assert config["exit_layer"] == 1 and config["exit_mlp"] == (family == "exit_layer")
    done = hand_over_drafter(path, family, folder, number_type="float32")
    assert done.prompts == 4 and done.rounds > 0
    state = json.loads((folder / "training.json").read_text())
    assert state["step"] == first.steps and state["recipe"]["rows"] == 4
