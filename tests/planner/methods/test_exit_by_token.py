"""Tokens that a table lets leave the target early: tables, plans, and what is measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import specplan
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.measure.acceptance.continuations import continue_prompts
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner.drafters.token_exits import (
    read_token_exits,
    settled_tokens,
    write_token_exits,
)
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Refusal
from specplan.planner.methods.exit_by_token import METHOD, ExitByTokenOptions
from specplan.planner.problem.loading import load_problem
from tests.measure.problems import write_problem
from tests.planner.example_facts import SEVEN_BILLION, example_facts

TARGET = SEVEN_BILLION | {"num_hidden_layers": 4}
LINES = ("0.5\t0.6\t0.95\t1", "0.1\t0.45\t0.97\t1", "0\t0\t0\t0", "0.9\t0.99\t1\t1")


def facts_of(folder: Path, text: str = "\n".join(LINES)) -> ProblemFacts:
    (folder / "exits.tsv").write_text(text)
    return example_facts(folder, target=TARGET, token_exits="exits.tsv", methods=["exit_by_token"])


def test_tables_hold_shares_or_layers(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    path = facts.problem.token_exits
    assert path is not None
    shares = read_token_exits(path, facts.target)
    assert shares.shape == (4, 4) and shares[1, 2] == 0.97
    assert settled_tokens(shares, 3, 0.95, 9) == {0: 0.95, 1: 0.97, 3: 1.0}
    assert settled_tokens(shares, 3, 0.95, 2) == {1: 0.97, 3: 1.0}, "the best ones"
    write_token_exits(path, shares)
    assert np.array_equal(read_token_exits(path, facts.target), shares)
    path.write_text("3\n1\n4\n")
    assert read_token_exits(path, facts.target).tolist() == [
        [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "0.1\t0.2", "a", "0.1\t0.2\t0.3\t0.4\n0.1", "1\n" * 32001])
def test_tables_of_other_targets_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        facts_of(tmp_path, text)
    assert caught.value.where == "token_exits"


def test_a_plan_lists_tokens_and_compares_with_a_calibrated_number(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    settings = [*METHOD.run_settings(facts)]
    assert settings == [
        ExitByTokenOptions(1, 0.9), ExitByTokenOptions(1, 0.4), ExitByTokenOptions(2, 0.95),
        ExitByTokenOptions(2, 0.6), ExitByTokenOptions(2, 0.4), ExitByTokenOptions(3, 0.95),
    ]  # fmt: skip
    assert settings[2].words == "exit after layer 2 of tokens settled in 95%"
    plan = METHOD.plan(facts, settings[2])
    assert verify_plan(plan) == () and parse_plan(print_plan(plan)) == plan
    listed = "measure %t listed(tokens=[0, 1, 3], numbers=[0.6, 0.45, 0.99])"
    assert listed in print_plan(plan) and "value calibrated(init=0.95)" in print_plan(plan)
    wrong = (("[0, 1]", "2 tokens and 3 numbers"), ("[0, 1, 0.5]", "token ids"))
    for new, reason in wrong:
        broken = parse_plan(print_plan(plan).replace("[0, 1, 3]", new))
        assert any(reason in str(item) for item in verify_plan(broken))


def test_without_a_table_it_is_refused(tmp_path: Path) -> None:
    (refused,) = METHOD.choices(example_facts(tmp_path, target=TARGET, methods=["exit_by_token"]))
    assert isinstance(refused, Refusal) and "specplan profile token-exits" in refused.reason


def test_shares_are_counted_along_the_targets_own_texts(tmp_path: Path) -> None:
    """By running the layers of every prefix anew."""
    path = write_problem(tmp_path, prompts=3, output_tokens=10)
    out = specplan.profile_token_exits(path, tmp_path / "exits.tsv")
    bench = Workbench(load_problem(path))
    target = bench.models["target"]
    lines = [[*map(float, line.split("\t"))] for line in out.read_text().splitlines()]
    prompts = bench.prompts(PROFILE)
    settled, places = dict[int, list[int]](), dict[int, int]()
    for prompt, output in zip(
        prompts, continue_prompts(bench, prompts, lambda *_: None), strict=True
    ):
        for place in range(len(output)):
            text = [*prompt.tokens, *output[:place]]
            best = [best_after(target, text, layer) for layer in (1, 2, 3)]
            stays = [all(one == best[2] for one in best[layer:]) for layer in range(3)]
            known = settled.setdefault(text[-1], [0, 0, 0])
            settled[text[-1]] = [a + b for a, b in zip(known, stays, strict=True)]
            places[text[-1]] = places.get(text[-1], 0) + 1
    assert len(lines) == target.vocab_size
    for token, line in enumerate(lines):
        count = places.get(token, 0) + 1
        expected = [number / count for number in settled.get(token, [0, 0, 0])]
        assert line == pytest.approx(expected, rel=1e-3)
    data = json.loads(path.read_text()) | {"token_exits": "exits.tsv"}
    path.write_text(json.dumps(data))
    assert load_problem(path).token_exits == out


def best_after(target: object, text: list[int], layer: int) -> int:
    """The most probable next token by the first layers."""
    import torch

    size, model = len(text), target
    places, mask = torch.arange(size)[None], torch.ones(1, size, size, dtype=torch.bool).tril()
    cache = model.new_cache(1, size)  # type: ignore[attr-defined]
    hidden = model.hidden(  # type: ignore[attr-defined]
        torch.tensor([text]), places, places, mask, cache, (0, layer)
    )
    return int(model.logits(hidden)[0, -1].argmax())  # type: ignore[attr-defined]
