"""Kinds of plans: settings whose plans hold the same ops, as far as a backend tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from specplan.ir.ops import Accept, Forward, Grow, Measure, Op, Repeat
from specplan.ir.plan import Plan, walk_plan

OptionsT = TypeVar("OptionsT")


def kinds(
    settings: Iterable[OptionsT], plan: Callable[[OptionsT], Plan]
) -> list[list[tuple[OptionsT, Plan]]]:
    """Settings with their plans, those of one kind together.

    Args:
        settings: of one family.
        plan: gives a setting's plan.
    """
    by_ops: dict[frozenset[tuple[str, object]], list[tuple[OptionsT, Plan]]] = {}
    for options in settings:
        written = plan(options)
        ops = frozenset((op.keyword, variety(op)) for op in walk_plan(written))
        by_ops.setdefault(ops, []).append((options, written))
    return list(by_ops.values())


def variety(op: Op) -> object:
    """What a backend does in another way for ops of the same keyword; None for most."""
    match op:
        case Accept():
            return op.rule.name
        case Grow():
            return op.how
        case Measure():
            return op.kind.name
        case Forward():
            return bool(op.layers), bool(op.skip), op.write
        case Repeat():
            return len(op.carried), op.body.until is None, op.only is None
    return None


def nodes_of(options: object) -> int:
    """Verified nodes of a setting, 0 where it says nothing of them."""
    return int(getattr(options, "nodes", len(getattr(options, "parents", ()))))
