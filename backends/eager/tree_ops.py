"""The interpreter's ops that make, change and choose from trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.eager import sources
from specplan.backends.eager.values import Scope, held_as, nodes_as
from specplan.backends.ops.adopt import adopt
from specplan.backends.ops.graft import graft
from specplan.backends.ops.grow import grow
from specplan.backends.ops.lookup import lookup
from specplan.backends.ops.pick import pick
from specplan.backends.ops.place import place
from specplan.backends.ops.prune import prune
from specplan.backends.ops.relabel import relabel
from specplan.backends.ops.reroot import reroot
from specplan.backends.ops.reshaping import as_given, counts_of, padded_to, rehung
from specplan.backends.ops.score import score
from specplan.backends.ops.values import Path, Rows, Tree
from specplan.backends.reference.observed import Observed
from specplan.ir import ops as ir
from specplan.ir.types import NodesType
from specplan.ir.values import Value

if TYPE_CHECKING:
    from specplan.backends.eager.session import EagerSession


def _root(session: EagerSession, op: ir.Root, scope: Scope) -> None:
    scope[op.results[0]] = session.batch.root(session.scores)


def _grow(session: EagerSession, op: ir.Grow, scope: Scope) -> None:
    tree = held_as(scope[op.tree], Tree)
    grown = grow(
        op, tree, nodes_as(scope[op.at]), held_as(scope[op.logits], Rows),
        None if op.by is None else held_as(scope[op.by], Tensor),
        settings=session.batch.settings, chain=session.tree_type(op).is_chain,
        remembers=session.prepared.mixes,
    )  # fmt: skip
    session.observed = Observed(variant=op.how, width=grown.size - tree.size)
    scope[op.results[0]] = grown


def _lookup(session: EagerSession, op: ir.Lookup, scope: Scope) -> None:
    tree, at = held_as(scope[op.tree], Tree), nodes_as(scope[op.at])
    wanted = sources.wanted_of(op, at.width)
    grown = lookup(
        tree, at, sources.asked(session.batch, op, at, wanted),
        counts=counts_of(op.children, at.width), length=op.length,
        merged=wanted.nodes is not None, chain=session.tree_type(op).is_chain,
    )  # fmt: skip
    session.observed = Observed(kind_of(session, op.source), width=grown.size - tree.size)
    scope[op.results[0]] = grown


def kind_of(session: EagerSession, source: str) -> str:
    """What a source is called among sources; "" for the text."""
    return session.batch.sources[source].kind if source in session.batch.sources else ""


def _graft(session: EagerSession, op: ir.Graft, scope: Scope) -> None:
    trees = [held_as(scope[name], Tree) for name in op.trees]
    joined = graft(op, trees, chain=session.tree_type(op).is_chain)
    session.observed = Observed(variant=op.same, width=max(1, joined.size))
    scope[op.results[0]] = joined


def _pick(session: EagerSession, op: ir.Pick, scope: Scope) -> None:
    tree = held_as(scope[op.tree], Tree)
    if op.best is not None:
        among = tree.size if op.of == "all" else len(tree.newest)
        session.observed = Observed(variant="best", width=among)
    scope[op.results[0]] = pick(
        op, tree, None if op.at is None else nodes_as(scope[op.at]),
        None if op.count is None else held_as(scope[op.count], Tensor),
        kind=held_as(session.gives(op), NodesType),
        above=held_as(scope[op.above], Tensor) if isinstance(op.above, Value) else None,
    )  # fmt: skip


def _score(session: EagerSession, op: ir.Score, scope: Scope) -> None:
    tree = held_as(scope[op.tree], Tree)
    _worked(session, tree)
    scope[op.results[0]] = score(
        tree, None if op.logits is None else held_as(scope[op.logits], Rows),
        None if op.factor is None else held_as(scope[op.factor], Tensor),
    )  # fmt: skip


def _prune(session: EagerSession, op: ir.Prune, scope: Scope) -> None:
    chosen = session.prepared.read(op, session.trip, op.to)
    pruned = prune(
        held_as(scope[op.tree], Tree), nodes_as(scope[op.to]), kind=session.tree_type(op),
        chosen=chosen if isinstance(chosen, NodesType) else None,
    )  # fmt: skip
    _worked(session, pruned)
    scope[op.results[0]] = pruned


def _place(session: EagerSession, op: ir.Place, scope: Scope) -> None:
    tree, at = held_as(scope[op.tree], Tree), nodes_as(scope[op.at])
    placed = place(op, tree, at, chain=session.tree_type(op).is_chain)
    _worked(session, placed)
    scope[op.results[0]] = placed


def _relabel(session: EagerSession, op: ir.Relabel, scope: Scope) -> None:
    tree = held_as(scope[op.tree], Tree)
    _worked(session, tree)
    scope[op.results[0]] = relabel(
        op, tree, None if op.logits is None else held_as(scope[op.logits], Rows),
        None if op.other is None else held_as(scope[op.other], Tree),
        None if op.at is None else nodes_as(scope[op.at]),
    )  # fmt: skip


def _reroot(session: EagerSession, op: ir.Reroot, scope: Scope) -> None:
    tree, now = held_as(scope[op.tree], Tree), session.batch.root(session.scores)
    _worked(session, tree)
    scope[op.results[0]] = reroot(tree, now.keys, now.tokens, kind=session.tree_type(op))


def _adopt(session: EagerSession, op: ir.Adopt, scope: Scope) -> None:
    tree, path = held_as(scope[op.tree], Tree), held_as(scope[op.path], Path)
    rows = held_as(scope[op.logits or Value("")], Rows)
    longer = adopt(tree, path, rows, settings=session.batch.settings, kind=session.tree_type(op))
    _worked(session, longer)
    scope[op.results[0]] = longer


def _load(session: EagerSession, op: ir.Load, scope: Scope) -> None:
    held = session.batch.values[op.state]
    if isinstance(held, Tree):
        _worked(session, held)
        root = session.batch.root(session.scores)
        tokens = torch.cat([root.tokens, held.tokens[:, 1:]], 1)
        held = rehung(replace(held, tokens=tokens), root.keys)
    scope[op.results[0]] = held


def _store(session: EagerSession, op: ir.Store, scope: Scope) -> None:
    held, known = scope[op.value], session.batch.values[op.state]
    if isinstance(held, Tree) and isinstance(known, Tree):
        held = padded_to(held, known.columns)
        if op.state not in session.prepared.drawn:
            held = as_given(held)
    assert isinstance(held, Tree | Tensor)
    session.batch.values[op.state] = held


def _worked(session: EagerSession, tree: Tree) -> None:
    session.observed = Observed(width=max(1, tree.size))


TREE_OPS: dict[type, Callable[[EagerSession, Any, Scope], None]] = {
    ir.Root: _root,
    ir.Grow: _grow,
    ir.Lookup: _lookup,
    ir.Graft: _graft,
    ir.Pick: _pick,
    ir.Score: _score,
    ir.Prune: _prune,
    ir.Place: _place,
    ir.Relabel: _relabel,
    ir.Reroot: _reroot,
    ir.Adopt: _adopt,
    ir.Load: _load,
    ir.Store: _store,
}
"""By op; called with the session, the op and the values so far, to which results are added."""
