"""Answers of Spec-Bench, JSON Lines.

Source: github.com/hemingkx/Spec-Bench, evaluation/eval.py: `choices[0].accept_lengths` has the
tokens of every step of a question's turns, the bonus included; plain decoding logs 1 each. What was
drafted is not in the file: depths stand for drafted levels, the first rank for whatever was
accepted there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from specplan.cost_models.acceptance.fits.requests import Histogram, fit_requests
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source


def _choices(record: object) -> Mapping[str, Any] | None:
    if not isinstance(record, dict):
        return None
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) and "accept_lengths" in first else None


def _recognises(source: Source) -> bool:
    return any(_choices(record) is not None for record in source.documents)


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    questions = [
        [
            source.tokens(value, f"a length of question {number}")
            for value in source.numbers(choice["accept_lengths"], "accept_lengths")
        ]
        for number, choice in enumerate(map(_choices, source.documents), start=1)
        if choice is not None
    ]
    steps = [length for lengths in questions for length in lengths]
    if not steps or min(steps) < 1:
        what = "a step emitted no token: the bonus is not counted" if steps else "it has no steps"
        raise source.error(what, "Give the answers that Spec-Bench's evaluation wrote.")
    if max(steps) == 1:
        raise source.error(
            "every step emitted one token: this is plain decoding",
            "Give the answers of a method that drafts.",
        )
    deepest = max(max(steps) - 1, request.draft_tokens or 0)
    histograms = [_histogram(lengths, deepest) for lengths in questions if lengths]
    note = "what was drafted is not in the file: one chain is assumed"
    return fit_requests(histograms, request.key, {"note": note})


def _histogram(lengths: list[int], deepest: int) -> Histogram:
    counts = Counter(length - 1 for length in lengths)
    return {deepest: [float(counts[accepted]) for accepted in range(deepest + 1)]}


IMPORTER = Importer(
    "spec-bench", "answers of Spec-Bench, JSON Lines", _recognises, _read, every_round=True
)
