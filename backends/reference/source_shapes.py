"""Lookups and updates that the reference backend does not run, found before it runs; no torch."""

from __future__ import annotations

from specplan.backends.reference.chain_shapes import ChainStages
from specplan.ir.infer import Step
from specplan.ir.ops import Lookup, Update
from specplan.ir.plan import Plan, SourceState
from specplan.ir.scope import nodes_of
from specplan.ir.tree_types import child_counts
from specplan.ir.types import ROOT, LogitsType, TreeType
from specplan.ir.values import TEXT_STATE
from specplan.runtime.sources.registry import SOURCES

_TEXT = "text is looked up below the root of an empty tree, or below the tip of a chain"


def lookup_reason(plan: Plan, op: Lookup, step: Step, chains: ChainStages) -> str | None:
    """Why a lookup cannot run, or None."""
    tree, at = step.reads[op.tree], nodes_of(step.reads, op.at, "at")
    assert isinstance(tree, TreeType)
    counts = op.children if isinstance(op.children, tuple) else (op.children,)
    most = sum(child_counts(op.children, at)) * op.length
    merged = op.nodes is not None and op.nodes < most
    tip = chains.is_tip(at) or (tree.is_chain and at.indices == tree.leaves)
    if op.source == TEXT_STATE:
        if not tip:
            return _TEXT
        return "the text gives one continuation" if counts != (1,) or op.nodes is not None else None
    source = plan.state(op.source)
    assert isinstance(source, SourceState)
    kind = source.kind.name
    made = SOURCES[kind]
    if made.one_text and source.scope != "request":
        return f"{kind} holds one text: declare @{source.name} with scope=request"
    if made.one_continuation and (counts != (1,) or merged):
        return f"{kind} gives one continuation"
    if merged and not made.merges:
        return f"{kind} gives continuations side by side: leave nodes= out"
    if tip and (not tree.nodes or not merged):
        return None
    if merged or tree.parents is None or at.indices is None:
        return "below drafted nodes continuations stand side by side, and the nodes are known"
    if op.match not in ((), (1, 1)):
        return "below drafted nodes single tokens are looked up: match=[1, 1]"
    if tree.drawn:
        return "below nodes that were drawn nothing is looked up"
    return None


def update_reason(plan: Plan, op: Update, step: Step) -> str | None:
    """Why a source cannot be taught so, or None."""
    source, tree = plan.state(op.source), step.reads[op.tree]
    assert isinstance(source, SourceState) and isinstance(tree, TreeType)
    rows, wanted = None if op.logits is None else step.reads[op.logits], {ROOT, *range(tree.nodes)}
    if isinstance(rows, LogitsType) and rows.indices is not None and not wanted <= {*rows.indices}:
        return "a source learns rows of the root and of all nodes of the tree"
    learns = SOURCES[source.kind.name].learns
    taught = "rows" if op.logits is not None else "runs" if tree.nodes else "text"
    if taught not in learns:
        return f"{source.kind.name} learns {' and '.join(learns) or 'nothing'} here"
    if taught == "runs" and tree.parents is None:
        return "runs are learned of trees that have one shape for all requests"
    return None
