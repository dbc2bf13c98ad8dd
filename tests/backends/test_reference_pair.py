"""The shipped pair: in float32 as plain decoding, in bfloat16 but for near ties.

A pass over n tokens rounds otherwise than n passes over one, so two tokens whose logits nearly
agree may change places. What else differs would be a defect. Processors without bfloat16
arithmetic emulate it row by row, so few requests go through every plan.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from specplan.ir.plan import Plan
from specplan.measure.teacher import text_logits
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, law
from specplan.runtime.tokenizer import load_tokenizer
from tests.backends.kinds import every_kind
from tests.backends.pairs import in_batches, load_pair, plain, run

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
            prompt_tokens=tuple(tokenizer.encode(text)[: 40 + index % 41]),
            max_new_tokens=NEW_TOKENS,
            stop_tokens=tokenizer.stop_tokens,
        )
        for index, text in enumerate(held_out[:: len(held_out) // REQUESTS])
    ]


def test_bfloat16_differs_at_near_ties_alone(
    folder: Path, exact: dict[str, CausalModel], requests: list[Request], tmp_path: Path
) -> None:
    pair, requests = load_pair(folder, "bfloat16"), requests[::3]
    expected = in_batches(plain(), pair, requests, 1)
    counted: dict[str, int] = {}
    for name, plan in [("plain", plain()), *every_kind(tmp_path, 0.0, 1, LAYERS)]:
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
    expected = in_batches(plain(), exact, requests, 1)
    for name, plan in every_kind(tmp_path, 0.0, 1, LAYERS):
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

    After this prompt nearly all draw that first token, and eight are likely to follow it.
    """
    prompt, settings = requests[1].prompt_tokens[:20], {"temperature": 1.0, "top_k": 200}
    first = int(text_logits(exact["target"], [*prompt, 0], len(prompt))[0].argmax())
    text = [*prompt, first]
    one = SamplingSettings.of([Request(prompt_tokens=prompt, **settings)])  # type: ignore[arg-type]
    logits = text_logits(exact["target"], [*text, 0], len(text))
    expected = law(logits[None], one)[0, 0].double().numpy()
    for name, plan in every_kind(tmp_path, 0.8, 1, LAYERS):
        counts = _second_tokens(plan, exact, prompt, first, settings, len(expected))
        assert counts[expected == 0].sum() == 0, name
        assert _p_value(counts, expected) > 1e-4, name


def _second_tokens(
    plan: Plan,
    pair: dict[str, CausalModel],
    prompt: tuple[int, ...],
    first: int,
    settings: dict[str, float],
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
    kept = wanted > 0
    assert kept.sum() >= 4, "too few likely tokens to test a law"
    return float(chisquare(seen[kept], wanted[kept] * seen.sum() / wanted[kept].sum()).pvalue)
