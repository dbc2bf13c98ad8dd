"""Heads that write without verification: what they write is what stays above the bar."""

from __future__ import annotations

from pathlib import Path

import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.measure.acceptance.heads import text_features
from specplan.measure.quality.laws import unknown_law
from specplan.planner.methods.unverified_heads import METHOD, UnverifiedHeadsOptions
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import unrolled
from specplan.runtime.requests import Request
from tests.backends.heads import with_heads
from tests.backends.kinds import all_facts
from tests.backends.pairs import load_pair, save_pair

VOCABULARY, NEW, DEPTH = 17, 14, 3


def written(target: CausalModel, heads: Drafter, bar: float, prompt: list[int]) -> list[int]:
    """Tokens of each round, by the paper's words: the target's, then those that joint is sure of.

    DynaMo, arXiv 2405.00888 section 3: the product of the heads' probabilities, and back-off.
    """
    text, rounds = list(prompt), list[int]()
    while len(text) < len(prompt) + NEW:
        known = torch.tensor([text])
        states = text_features(target, Texts.alone(known), ())
        new, joint = [int(target.logits(states)[0, -1].argmax())], 1.0
        after = torch.tensor([[*text, new[0]]])
        padded = torch.cat([states, states[:, -1:]], 1)  # that of the new token is read by nothing
        for logits in unrolled(heads, after, padded, DEPTH):
            joint *= float(logits[0, -1].softmax(-1).max())
            if joint < bar:
                break
            new.append(int(logits[0, -1].argmax()))
        text, rounds = text + new, [*rounds, len(new)]
    return [*text[len(prompt) : len(prompt) + NEW], len(rounds)]


def test_tokens_are_written_while_the_heads_are_jointly_sure(tmp_path: Path) -> None:
    save_pair(tmp_path / "pair", VOCABULARY, scale=0.3, sureness=2.0)
    models = with_heads(load_pair(tmp_path / "pair"))
    target, heads = models["target"], models["heads"]
    facts, rounds = all_facts(tmp_path, 0.0, VOCABULARY), set[int]()
    given, prompt = {"target": target, "heads": heads}, [3, 1, 4, 1, 5]
    request = Request(prompt_tokens=tuple(prompt), max_new_tokens=NEW, temperature=0.0)
    for bar in (0.05, 0.3, 0.9):
        plan = METHOD.plan(facts, UnverifiedHeadsOptions("heads", DEPTH, bar))
        expected = written(target, heads, bar, prompt)
        for compiled in (EagerBackend().compile, StaticExecutable):
            done = generate(compiled(plan, given), [request]).completions[0]
            assert [*done.tokens, done.rounds] == expected
        rounds.add(expected[-1])
    assert len(rounds) == 3 and max(rounds) <= NEW
    assert unknown_law(plan) == "rule all judges by no logits"
