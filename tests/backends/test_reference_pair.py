"""The shipped pair: in float32 as plain decoding, in bfloat16 but for near ties.

A pass over n tokens rounds otherwise than n passes over one, so two tokens whose logits nearly
agree may change places. What else differs would be a defect. Processors without bfloat16
arithmetic emulate it row by row, so few requests go through every plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from specplan.ir import check_plan, parse_plan
from specplan.ir.ops import Accept
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.tables.acceptance import LOSSLESS
from specplan.measure.acceptance.teacher import text_logits
from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, draw, probabilities
from specplan.runtime.tokenizer import load_tokenizer
from specplan.runtime.uniforms import uniforms
from tests.backends.kinds import every_kind
from tests.backends.pairs import in_batches, load_pair, plain, run
from tests.matrix import LONG, sized
from tests.plan_texts import drafted, judged

TOLERANCE = 0.25
"""Largest difference, in float32 logits, of two tokens that bfloat16 may take for one another."""
REQUESTS = 20
NEW_TOKENS = 12
LAYERS = 20
BATCH = 4


@pytest.fixture(scope="module")
def folder(repository: Path) -> Path:
    return repository / "examples" / "reference_models"


@pytest.fixture(scope="module")
def exact(folder: Path) -> dict[str, CausalModel]:
    return load_pair(folder, "float32")


@pytest.fixture(scope="module")
def requests(folder: Path, held_out: list[str]) -> list[Request]:
    tokenizer = load_tokenizer(folder / "target")
    return [
        Request(
            prompt_tokens=tuple(tokenizer.encode(text)[: 24 + index % 17]),
            max_new_tokens=NEW_TOKENS,
            stop_tokens=tokenizer.stop_tokens,
        )
        for index, text in enumerate(held_out[:: len(held_out) // REQUESTS])
    ]


def each_way(folder: Path, temperature: float) -> Iterator[tuple[str, Plan]]:
    """A small plan of every method and shape; tiny models run more of each."""
    seen = set()
    for name, plan in every_kind(folder, temperature, 3, LAYERS):
        way = name.split(",")[0], "tree" in name
        if way not in seen:
            seen.add(way)
            yield name, plan


def rule_of(plan: Plan) -> str:
    """The rule by which the plan accepts."""
    return next(op.rule.name for op in walk_plan(plan) if isinstance(op, Accept))


def test_bfloat16_differs_at_near_ties_alone(
    folder: Path, exact: dict[str, CausalModel], requests: list[Request], tmp_path: Path
) -> None:
    pair, requests = load_pair(folder, "bfloat16"), requests[::3]
    expected = in_batches(plain(), pair, requests, 1)
    counted: dict[str, int] = {}
    for name, plan in [("plain", plain()), *each_way(tmp_path, 0.0)]:
        outputs = in_batches(plan, pair, requests, BATCH)
        margins = [
            _margin(exact["target"], request.prompt_tokens, mine, theirs)
            for request, mine, theirs in zip(requests, outputs, expected, strict=True)
            if mine != theirs
        ]
        counted[name] = len(margins)
        assert max(margins, default=0.0) < TOLERANCE, (name, margins)
    print({name: f"{count} of {len(requests)}" for name, count in counted.items()})
    assert all(count < len(requests) / 2 for count in counted.values()), counted


def test_float32_agrees_token_by_token(
    exact: dict[str, CausalModel], requests: list[Request], tmp_path: Path
) -> None:
    requests = requests[: sized(8, REQUESTS)]
    expected = in_batches(plain(), exact, requests, 1)
    for name, plan in each_way(tmp_path, 0.0):
        assert in_batches(plan, exact, requests, BATCH) == expected, name


def _margin(
    model: CausalModel, prompt: tuple[int, ...], mine: tuple[int, ...], theirs: tuple[int, ...]
) -> float:
    """How far apart the first two tokens that differ are, in the logits of a float32 model."""
    place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    text = [*prompt, *theirs[: place + 1]]
    logits = text_logits(model, text, len(text) - 1)[0]
    return float((logits[mine[place]] - logits[theirs[place]]).abs())


def test_sampled_tokens_follow_the_targets_law(
    exact: dict[str, CausalModel], requests: list[Request], tmp_path: Path
) -> None:
    """The second token, given the likeliest first one: chi-square against the law itself.

    A plan of each rule; of each method and shape in the long matrix.
    """
    prompt, settings, first, expected = _after_the_first(exact, requests)
    plans = [*each_way(tmp_path, 0.8)]
    by_rule = {rule_of(plan): (name, plan) for name, plan in reversed(plans)}
    for name, plan in plans if LONG else by_rule.values():
        counts = _second_tokens(plan, exact, prompt, first, settings, len(expected))
        assert counts[expected == 0].sum() == 0, name
        assert _p_value(counts, expected) > 1e-4, name


BUSH = """
  %t0 = root
  %q = forward draft %t0 cache=@dkv pending=3
  %u = uniform 3 stream=draft
  %c = grow %t0 at=%t0 logits=%q children=3 how=draw by=%u
"""


@pytest.mark.parametrize("rule", ["k_seq", "gumbel"])
def test_siblings_judged_by_other_rules_follow_the_targets_law(
    rule: str, exact: dict[str, CausalModel], requests: list[Request]
) -> None:
    plan = check_plan(parse_plan(drafted(BUSH, judge=judged(rule, 3))))
    prompt, settings, first, expected = _after_the_first(exact, requests)
    counts = _second_tokens(plan, exact, prompt, first, settings, len(expected))
    assert counts[expected == 0].sum() == 0
    assert _p_value(counts, expected) > 1e-4


@pytest.mark.parametrize("rule", [item.name for item in LOSSLESS if item.lossless == "always"])
def test_every_lossless_rule_keeps_the_law_of_the_pair(
    rule: str, exact: dict[str, CausalModel], requests: list[Request]
) -> None:
    """The first token emitted after a prompt, for 1500 seeds: chi-square against the law itself.

    Chains of one and trees of three independent draws from the draft's law there. The vocabulary is
    every token that target or draft may give, and some that neither gives.
    """
    text, seeds = [*requests[1].prompt_tokens[:20], 0], list(range(1500))
    one = SamplingSettings.of([Request(prompt_tokens=(0,), temperature=1.0, top_k=50)])
    p, q = (probabilities(text_logits(exact[name], text, 20)[None], one)[0, 0] for name in exact)
    possible = (p + q > 0) | (torch.arange(len(p)) % 64 == 0)
    p, q = p[possible], q[possible]
    count = 1 if rule in ("token", "block") else 3
    drawn = draw(q.expand(1500, count, -1), uniforms(seeds, "draft", [20] * 1500, 0, count))
    laws, nodes = q.expand(1500, 1, -1), (-1,) * count
    tree = DraftedTree(drawn, nodes, None, laws, (0,) * count, distinct=False)
    numbers = uniforms(seeds, "accept", [20] * 1500, 0, count + 1)
    judged = RULES[rule].accept_vectorised(tree, p.expand(1500, count + 1, -1), numbers)
    first = drawn.gather(1, judged.path[:, :1].clamp(min=0))[:, 0]
    emitted = torch.where(judged.accepted > 0, first, judged.bonus)
    counts = emitted.bincount(minlength=len(p)).numpy()
    assert 0 < int(judged.accepted.sum()) < 1500
    assert counts[p.numpy() == 0].sum() == 0
    assert _p_value(counts, p.double().numpy()) > 1e-4


Settings = dict[str, float]


def _after_the_first(
    exact: dict[str, CausalModel], requests: list[Request]
) -> tuple[tuple[int, ...], Settings, int, np.ndarray]:
    """Prompt, settings, the likeliest first token, and the law of the second one after it.

    After this prompt nearly all draw that first token, and eight are likely to follow it. 200
    requests see the draft's law there in place of the target's without fail, and half of it in
    seven cases of eight.
    """
    prompt, settings = requests[14].prompt_tokens[:8], {"temperature": 1.0, "top_k": 200}
    first = int(text_logits(exact["target"], [*prompt, 0], len(prompt))[0].argmax())
    text = [*prompt, first]
    one = SamplingSettings.of([Request(prompt_tokens=prompt, **settings)])  # type: ignore[arg-type]
    logits = text_logits(exact["target"], [*text, 0], len(text))
    return prompt, settings, first, probabilities(logits[None], one)[0, 0].double().numpy()


def _second_tokens(
    plan: Plan,
    pair: dict[str, CausalModel],
    prompt: tuple[int, ...],
    first: int,
    settings: Settings,
    vocabulary: int,
) -> np.ndarray:
    counts = np.zeros(vocabulary)
    for start in range(0, 200, 100):
        requests = [
            Request(prompt_tokens=prompt, max_new_tokens=2, seed=seed, **settings)  # type: ignore[arg-type]
            for seed in range(start, start + 100)
        ]
        for tokens in run(plan, pair, requests):
            if tokens[0] == first:
                counts[tokens[1]] += 1
    assert counts.sum() > 150
    return counts


def _p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square over the likely tokens and all others together."""
    large = expected * counts.sum() >= 5
    seen = np.append(counts[large], counts[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum()) * counts.sum()
    likely = wanted > 0
    assert likely.sum() >= 4, "too few likely tokens to test a law"
    return float(chisquare(seen[likely], wanted[likely] * seen.sum() / wanted[likely].sum()).pvalue)
