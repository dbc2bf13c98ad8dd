"""Prompts are read in chunks beside requests that decode (SARATHI, arXiv 2308.16369)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from specplan.ir.ops import Forward, Op
from specplan.ir.plan import CacheState, Plan, Round, walk_plan
from specplan.ir.types.infer import infer_round
from specplan.ir.values import State
from specplan.passes.values import with_body, with_rounds


@dataclass(frozen=True)
class Chunk:
    """`forward m %t cache=@c pending=p` -> the same with `pending=tokens most=...`, on every cache.

    A pass of all requests together takes as many tokens as their nodes and `tokens` of text. Where
    a pass of the target's caches does otherwise than its whole stack does (layers, skipped blocks,
    hidden states, small caches), the plan stays as it is, and prompts are read before its rounds.

    Attributes:
        tokens: of text that a pass has room for when all requests decode.
        running: most requests of a batch.
    """

    tokens: int
    running: int

    def __call__(self, plan: Plan) -> Plan:
        """The plan that reads in chunks; the same object where it cannot."""
        plain = {state.name for state in plan.states if _is_whole(plan, state)}
        target = {s.name for s in plan.states if isinstance(s, CacheState) and s.model == "target"}
        if not target or not target <= plain:
            return plan
        return with_rounds(plan, lambda item: self._round(plan, item, plain))

    def _round(self, plan: Plan, item: Round, caches: set[State]) -> Round:
        nodes: dict[int, int] = {}
        for step in infer_round(plan, item).steps:
            if isinstance(step.op, Forward):
                work = step.op.demand(step, plan)
                width = work.drafted + work.root
                nodes[id(step.op)] = max(width, nodes.get(id(step.op), 0))

        def bounded(op: Op) -> Op:
            if op.body is not None:
                return with_body(op, map(bounded, op.body.ops))
            if not isinstance(op, Forward) or op.cache not in caches or not op.pending:
                return op
            most = self.tokens + self.running * nodes[id(op)]
            return dataclasses.replace(op, pending=max(op.pending, self.tokens), most=most)

        return dataclasses.replace(item, ops=tuple(map(bounded, item.ops)))


def _is_whole(plan: Plan, state: object) -> bool:
    """Whether all passes on a cache run a whole stack on tokens and write for good."""
    if not isinstance(state, CacheState) or state.policy is not None or state.view is not None:
        return False
    passes = [op for op in walk_plan(plan) if isinstance(op, Forward) and op.cache == state.name]
    return bool(passes) and not any(
        op.layers or op.skip or op.features or op.keep or op.only
        or op.write != "exact" or op.attend != "ancestors" or op.most is not None
        for op in passes
    )  # fmt: skip
