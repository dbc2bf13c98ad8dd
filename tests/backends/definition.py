"""What plans decode by definition: the interpreter is held equal to the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.oracle.backend import OracleBackend
from specplan.ir.capabilities import refusals
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import plainly

Outputs = list[tuple[tuple[int, ...], int]]
"""Emitted tokens and rounds of each request."""


def edited(text: str, edits: Mapping[str, str]) -> str:
    """The text with each of some parts, which stand in it once, replaced by another."""
    for old, new in edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def outputs(executable: Executable, requests: Sequence[Request]) -> Outputs:
    """What one batch decodes."""
    return [(item.tokens, item.rounds) for item in generate(executable, requests).completions]


def decodes_as_defined(
    text: str, models: dict[str, CausalModel], requests: Sequence[Request]
) -> None:
    """A plan verifies, is not refused, and decodes one batch in the oracle's tokens and rounds.

    Greedily these are the tokens of plain decoding, where the plan promises them.
    """
    plan = parse_plan(text)
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    decodes = outputs(EagerBackend().compile(plan, models), requests)
    assert decodes == outputs(OracleBackend().compile(plan, models), requests)
    if plan.assumptions.lossless and not any(request.temperature for request in requests):
        assert [tokens for tokens, _ in decodes] == plainly(models, requests)
