"""The shipped pair in bfloat16: every difference from plain decoding is a near tie.

A pass over n tokens rounds otherwise than n passes over one, so two tokens whose logits nearly
agree may change places. What else differs would be a defect.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from specplan.ir.plan import Plan
from specplan.measure.teacher import text_logits
from specplan.runtime.models import CausalModel, load_model
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, law
from specplan.runtime.tokenizer import load_tokenizer
from tests.backends.kinds import every_kind
from tests.backends.pairs import in_batches, load_pair, plain, run

TOLERANCE = 0.25
"""Largest difference, in float32 logits, of two tokens that bfloat16 may take for one another."""
NEW_TOKENS = 12
LAYERS = 20


@pytest.fixture(scope="module")
def folder(repository: Path) -> Path:
    return repository / "examples" / "reference_models"


@pytest.fixture(scope="module")
def pair(folder: Path) -> dict[str, CausalModel]:
    return load_pair(folder, "auto")


@pytest.fixture(scope="module")
def requests(folder: Path, held_out: list[str]) -> list[Request]:
    tokenizer = load_tokenizer(folder / "target")
    return [
        Request(
            prompt_tokens=tuple(tokenizer.encode(text)[: 40 + index % 41]),
            max_new_tokens=NEW_TOKENS,
            stop_tokens=tokenizer.stop_tokens,
        )
        for index, text in enumerate(held_out)
    ]


def test_differences_from_plain_decoding_are_near_ties(
    folder: Path, pair: dict[str, CausalModel], requests: list[Request], tmp_path: Path
) -> None:
    exact = load_model(folder / "target", dtype="float32")
    expected = in_batches(plain(), pair, requests, 1)
    counted: dict[str, int] = {}
    kinds = [("plain", plain()), *every_kind(tmp_path, 0.0, 1, LAYERS)]
    for name, plan in kinds:
        for batch in (4,) if name == "plain" else (1, 4):
            outputs = in_batches(plan, pair, requests, batch)
            margins = [
                _margin(exact, request.prompt_tokens, mine, theirs)
                for request, mine, theirs in zip(requests, outputs, expected, strict=True)
                if mine != theirs
            ]
            counted[f"{name}, batch {batch}"] = len(margins)
            assert max(margins, default=0.0) < TOLERANCE, (name, batch, margins)
    print({name: f"{count} of {len(requests)}" for name, count in counted.items()})
    assert all(count < len(requests) / 4 for count in counted.values()), counted


def test_float32_agrees_token_by_token(
    folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    pair = load_pair(folder, "float32")
    some = requests[::10]
    expected = in_batches(plain(), pair, some, 1)
    for name, plan in every_kind(tmp_path, 0.0, 1, LAYERS):
        assert in_batches(plan, pair, some, 4) == expected, name


def _margin(
    model: CausalModel, prompt: tuple[int, ...], mine: tuple[int, ...], theirs: tuple[int, ...]
) -> float:
    """How far apart the first two tokens that differ are, in the logits of a float32 model."""
    place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    text = [*prompt, *theirs[: place + 1]]
    logits = text_logits(model, text, len(text) - 1)[0]
    return float((logits[mine[place]] - logits[theirs[place]]).abs())


def test_sampled_tokens_follow_the_targets_law(
    folder: Path, pair: dict[str, CausalModel], requests: list[Request], tmp_path: Path
) -> None:
    """The second token, given the likeliest first one: chi-square against the law itself."""
    prompt, settings = requests[0].prompt_tokens, {"temperature": 1.0, "top_k": 200}
    first = int(text_logits(pair["target"], [*prompt, 0], len(prompt))[0].argmax())
    text = [*prompt, first]
    one = SamplingSettings.of([Request(prompt_tokens=prompt, **settings)])  # type: ignore[arg-type]
    logits = text_logits(pair["target"], [*text, 0], len(text))
    expected = law(logits[None], one)[0, 0].double().numpy()
    cut = float(logits[0].topk(200).values[-1])  # what stands near it may pass it in bfloat16
    impossible = (logits[0] < cut - TOLERANCE).numpy()
    for name, plan in every_kind(tmp_path, 0.8, 1, LAYERS):
        counts = _second_tokens(plan, pair, prompt, first, settings, len(expected))
        assert counts[impossible].sum() == 0, name
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
    for start in range(0, 600, 200):
        requests = [
            Request(prompt_tokens=prompt, max_new_tokens=2, seed=seed, **settings)  # type: ignore[arg-type]
            for seed in range(start, start + 200)
        ]
        for tokens in run(plan, pair, requests):
            if tokens[0] == first:
                counts[tokens[1]] += 1
    assert counts.sum() > 30
    return counts


def _p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square over the likely tokens and all others together."""
    large = expected * counts.sum() >= 5
    seen = np.append(counts[large], counts[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum()) * counts.sum()
    kept = wanted > 0
    assert kept.sum() >= 4, "too few likely tokens to test a law"
    return float(chisquare(seen[kept], wanted[kept] * seen.sum() / wanted[kept].sum()).pvalue)
