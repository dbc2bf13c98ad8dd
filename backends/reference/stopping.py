"""Loops, and those that end by request: who goes on, and what those keep that have stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.reference.values import Held, Rows, Scope, Tree, held_as, live_mask
from specplan.ir.infer import infer_round
from specplan.ir.ops import Accept, Repeat
from specplan.ir.plan import Plan, walk
from specplan.ir.tables import BUILTIN
from specplan.ir.types import TreeType

if TYPE_CHECKING:
    from specplan.backends.reference.session import ReferenceSession


def repeat(session: ReferenceSession, op: Repeat, scope: Scope) -> None:
    """A number of trips; fewer where every request has asked for no more of them."""
    carried: list[Held] = [scope[initial] for _, initial in op.carried]
    outer, until = session.trip, op.body.until
    stops = None
    if until is not None:
        only = None if op.only is None else held_as(scope, op.only, Tensor)
        stops = Stops(session.batch.done, only)
        session.loops.append(stops)
    for index in range(op.count):
        if stops is not None and stops.over:
            break
        session.trip = outer * op.count + index
        inner = dict(scope)
        inner.update({p: held for (p, _), held in zip(op.carried, carried, strict=True)})
        session.run(op.body.ops, inner)
        following = [inner[name] for name in op.body.yields]
        if stops is not None and until is not None:
            following = stops.passed(carried, following, held_as(inner, until, Tensor))
        carried = following
    if stops is not None:
        session.loops.pop()
    session.trip = outer
    session.trips += [] if stops is None else [stops.trips]
    scope.update(zip(op.results, carried, strict=True))


def idle(session: ReferenceSession, row: int) -> bool:
    """Whether a request is done, or has stopped in a loop that runs on for others."""
    return session.done[row] or not all(bool(loop.running[row]) for loop in session.loops)


def judged_nodes(plan: Plan) -> dict[int, int]:
    """By the identity of an op that judges a tree, the nodes of the tree when all trips run.

    Only of rounds with a loop that may end early, where the tree may have fewer, and of rules that
    draw the bonus with the last number.
    """
    found: dict[int, int] = {}
    for item in plan.rounds:
        if any(isinstance(op, Repeat) and op.body.until is not None for op in walk(item.ops)):
            for step in infer_round(plan, item).steps:
                if isinstance(step.op, Accept) and not _draws_by_place(step.op):
                    tree = step.reads[step.op.tree]
                    assert isinstance(tree, TreeType)
                    found[id(step.op)] = tree.nodes
    return found


def _draws_by_place(op: Accept) -> bool:
    rule = BUILTIN.find("rule", op.rule.name)
    return rule is not None and rule.draws_by_place


def with_bonus(by: Tensor, nodes: int, most: int) -> Tensor:
    """Uniforms `[B, nodes + 1]`, of which the bonus gets that of a tree of `most` nodes.

    So what a request draws does not depend on how long others of its batch went on.
    """
    return torch.cat([by[:, :nodes], by[:, most : most + 1]], 1)


class Stops:
    """The requests of a batch in a loop that may end early.

    Attributes:
        running: bool `[B]`, on the host: the next trip counts for them.
        trips: int64 `[B]`, trips that each request took so far.
    """

    def __init__(self, done: list[bool], only: Tensor | None = None) -> None:
        self.running = ~torch.tensor(done, dtype=torch.bool)
        if only is not None:
            self.running &= only.to(self.running.device)
        self.trips = torch.zeros_like(self.running, dtype=torch.int64)

    @property
    def over(self) -> bool:
        """Whether every request has stopped."""
        return not bool(self.running.any())

    def passed(self, before: list[Held], after: list[Held], flag: Tensor) -> list[Held]:
        """What is carried on from a trip; requests whose flag holds take no further one.

        Args:
            before: carried values as they entered the trip.
            after: as it left them.
            flag: bool `[B]`.
        """
        if not bool(self.running.all()):
            after = [kept(self.running, *both) for both in zip(before, after, strict=True)]
        self.trips += self.running
        self.running = self.running & ~flag.to(self.running.device)
        return after


def kept(running: Tensor, before: Any, after: Any) -> Any:
    """What a trip made for requests that run, and what it found for the others.

    Args:
        running: bool `[B]`.
        before: a tree, rows, a number or a flag, as it entered the trip.
        after: as it left it.
    """
    match before, after:
        case Tree(), Tree():
            return _grown(running, before, after)
        case Rows(), Rows():
            chosen = running.to(after.logits.device)[:, None, None]
            return replace(after, logits=torch.where(chosen, after.logits, before.logits))
        case Tensor(), Tensor():
            return torch.where(running, after, before)
    raise AssertionError("what else a loop carries is refused before a plan runs")


def _grown(running: Tensor, before: Tree, after: Tree) -> Tree:
    """The tree whose new nodes are dead for requests that have stopped, and score worst."""
    running = running.to(after.tokens.device)[:, None]
    live, size = live_mask(after), before.size
    live = torch.cat([live[:, :size], live[:, size:] & running], 1)
    if after.scores is None:
        return replace(after, live=live)
    new = after.scores[:, size:].masked_fill(~running, -torch.inf)
    return replace(after, live=live, scores=torch.cat([after.scores[:, :size], new], 1))
