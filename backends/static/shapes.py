"""Shapes that a graph of a round cannot hold, found before one is made; no torch."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.backends.reference import shapes
from specplan.backends.static.hosted import host_refusals
from specplan.ir.capabilities import Refusal
from specplan.ir.plan import Plan


def shape_refusals(plan: Plan) -> Iterator[Refusal]:
    """What the interpreter refuses, and what the host cannot do around a round's one call."""
    yield from shapes.shape_refusals(plan)
    yield from host_refusals(plan, "static")
