"""The interpreter's ops on what goes from round to round, and on numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from specplan.backends.reference import carrying, scalars, stopping
from specplan.backends.reference.values import Nodes, Path, Rows, Scope, Tree, held_as, nodes_as
from specplan.ir.ops import Compute, Load, Measure, Op, Place, Refresh, Relabel, Reroot, Store, When
from specplan.ir.plan import ValueState
from specplan.ir.values import Value

if TYPE_CHECKING:
    from specplan.backends.reference.session import ReferenceSession


class Running(Protocol):
    """A run of a round: by the interpreter, or as a graph. Values are held as each of them does."""

    def run(self, ops: tuple[Op, ...], scope: Any) -> None:
        """Run ops in order."""
        ...

    def apart(self, tree: Tree) -> Tree:
        """The tree with numbers of its own."""
        ...

    def worked(self, nodes: int, variant: str = "") -> None:
        """Tell whoever times ops how many nodes one works on, and of which kind it is."""
        ...


def place(run: Running, op: Place, scope: dict[Value, Any]) -> None:
    """Constant tokens below nodes."""
    tree = held_as(scope, op.tree, Tree)
    placed = carrying.place(op, tree, nodes_as(scope, op.at))
    run.worked(max(1, placed.size))
    # nodes that fill a chain up have not run, whatever ran in their places
    scope[op.results[0]] = placed if op.upto is None else run.apart(placed)


def relabel(run: Running, op: Relabel, scope: dict[Value, Any]) -> None:
    """New tokens."""
    tree = held_as(scope, op.tree, Tree)
    rows = None if op.logits is None else held_as(scope, op.logits, Rows)
    other = None if op.other is None else held_as(scope, op.other, Tree)
    run.worked(max(1, tree.size))
    scope[op.results[0]] = run.apart(carrying.relabel(op, tree, rows, other))


def reroot(session: ReferenceSession, op: Reroot, scope: Scope) -> None:
    """What is left below the emitted path."""
    tree, path = held_as(scope, op.tree, Tree), held_as(scope, op.path, Path)
    session.worked(max(1, tree.size))
    counts = torch.tensor([len(tokens) for tokens in path.tokens], device=tree.tokens.device)
    width = max(map(len, path.tokens))
    filled = [tokens + [0] * (width - len(tokens)) for tokens in path.tokens]
    emitted = torch.tensor(filled, dtype=torch.int64, device=counts.device)
    scope[op.results[0]] = session.apart(carrying.reroot(tree, emitted, counts, op.nodes))


def load(session: ReferenceSession, op: Load, scope: Scope) -> None:
    """What the last round left."""
    held = session.batch.values[op.state]
    if isinstance(held, Tree):
        session.worked(max(1, held.size))
        held = session.apart(held)
    scope[op.results[0]] = held


def store(session: ReferenceSession, op: Store, scope: Scope) -> None:
    """Leave something for the next round; nodes of a state without laws are given ones there."""
    held, known = scope[op.value], session.batch.values[op.state]
    if isinstance(held, Tree) and isinstance(known, Tree):
        held = carrying.filled_to(held, known)
        state = session.plan.state(op.state)
        assert isinstance(state, ValueState)
        if not state.keeps_laws:
            held = carrying.as_given(held)
    session.batch.values[op.state] = held


def refresh(session: ReferenceSession, op: Refresh, scope: Scope) -> None:
    """Copy a cache's text anew into the small copy of it."""
    cache = session.batch.caches[op.state]
    cache.refresh()
    kept = cache.kept
    if kept is not None:
        chunks = -(-max(cache.lengths) // kept.retrieved) if kept.retrieved else kept.budget
        session.worked(chunks, "retrieved" if kept.retrieved else "sink_recent")


def measure(session: ReferenceSession, op: Measure, scope: Scope) -> None:
    """One number per request, on the host."""
    operand = scope[Value(op.operand)]
    assert isinstance(operand, Tree | Nodes | Path | Rows | Tensor)
    nodes = 1
    if op.variant and isinstance(operand, Tree | Nodes):
        nodes = operand.size if isinstance(operand, Tree) else operand.width
    session.worked(max(1, nodes), op.variant)
    scope[op.results[0]] = scalars.measure(operand, op.kind).cpu()


def compute(session: ReferenceSession, op: Compute, scope: Scope) -> None:
    """Arithmetic on numbers."""
    operands = {name: held_as(scope, value, Tensor) for name, value in op.operands}
    scope[op.results[0]] = scalars.compute(
        op.formula, operands, session.batch.size, partial(stopping.idle, session)
    )


def when(run: Running, op: When, scope: dict[Value, Any]) -> None:
    """Ops without effects, run for all requests; those whose flag holds take what they give."""
    inner = dict(scope)
    run.run(op.body.ops, inner)
    flag = held_as(scope, op.flag, Tensor)
    for name, entered, kept in zip(op.results, op.body.yields, op.otherwise, strict=True):
        chosen = carrying.either(flag, inner[entered], scope[kept])
        scope[name] = run.apart(chosen) if isinstance(chosen, Tree) else chosen


CARRIED: dict[type, Callable[[Any, Any, Scope], None]] = {
    Place: place,
    Relabel: relabel,
    Reroot: reroot,
    Load: load,
    Store: store,
    Refresh: refresh,
    Measure: measure,
    Compute: compute,
    When: when,
}
"""By op; called with the session, the op and the values so far, to which results are added."""
