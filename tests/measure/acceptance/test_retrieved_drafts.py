"""Drafts with retrieved chunks are measured at every place as rounds there accept them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.backends.eager.backend import EagerBackend
from specplan.ir.blocks import NO_SKIPS
from specplan.measure.acceptance.own_drafts import RetrievingText, TeacherText
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, plain, run, save_pair
from tests.backends.test_retrieved_chunks import chain


def test_lengths_are_those_of_first_rounds(tmp_path: Path) -> None:
    """A round that begins at a place accepts as much, after a prompt that ends there."""
    save_pair(tmp_path, scale=0.14)
    models = load_pair(tmp_path)
    prompt = tuple((7 * place + place * place) % 61 for place in range(40))
    request = Request(prompt_tokens=prompt, max_new_tokens=21)
    (output,) = run(plain(), models, [request])
    text = RetrievingText(models["target"], request, output, 3)
    lengths = text.retrieved_lengths(16, 4)
    executable = EagerBackend().compile(chain(16, 4), models)
    ran = []
    for place in range(len(output)):
        begun = (*prompt, *output[:place])
        session = executable.start([Request(prompt_tokens=begun, max_new_tokens=9)])
        session.prefill()
        accepted = len(session.step("decode").tokens[0]) - 1
        ran.append(min(accepted, len(output) - place))
    assert lengths == ran
    assert len(set(lengths)) > 2, "some drafts are rejected, and some accepted"


def test_a_budget_for_all_text_is_accepted_whole(tmp_path: Path) -> None:
    save_pair(tmp_path)
    target = load_pair(tmp_path)["target"]
    request = Request(prompt_tokens=(5,), max_new_tokens=12)
    (output,) = run(plain(), {"target": target}, [request])
    lengths = RetrievingText(target, request, output, 4).retrieved_lengths(200, 8)
    assert lengths == TeacherText(target, request, output, 4).lengths(NO_SKIPS)
    assert lengths == [min(4, 12 - place) for place in range(12)]
