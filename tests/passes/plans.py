"""Plans of one round, and what rounds do step by step."""

from __future__ import annotations

from specplan.ir.ops import Uniform
from specplan.ir.plan import Plan, Round
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.infer import infer_round
from specplan.ir.types.value_types import NodesType, TreeType


def written(round_body: str, *, head: str = "", assume: str = "") -> Plan:
    """A plan of one round over a target, a draft and their caches."""
    return parse_plan(
        f"plan example\nmodel target\nmodel draft\n{assume}\nstate @kv = cache target\n"
        f"state @dkv = cache draft\n{head}\nround decode {{\n{round_body}\n}}\n"
    )


def steps(plan: Plan, item: Round) -> list[tuple[object, ...]]:
    """What runs, in order: keywords, sizes of trees and nodes, and the numbers that are drawn."""
    steps_of: list[tuple[object, ...]] = []
    for step in infer_round(plan, item).steps:
        op = step.op
        drawn = (op.stream, op.offset + step.trip * op.count) if isinstance(op, Uniform) else ()
        sizes = [
            (given.nodes, given.parents)
            if isinstance(given, TreeType)
            else (given.width, given.indices)
            for given in step.gives
            if isinstance(given, TreeType | NodesType)
        ]
        steps_of.append((op.keyword, tuple(sizes), drawn))
    return steps_of
