"""The ops that grow trees: `grow` from rows, `lookup` from the text."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.reference.batch import Batch
from specplan.backends.reference.values import Nodes, Rows, Tree
from specplan.ir.ops import Grow, Lookup
from specplan.runtime.sampling import best, draw, draw_distinct, law
from specplan.runtime.sources.ngram import lookup_batch


def grow(batch: Batch, op: Grow, tree: Tree, at: Nodes, rows: Rows, by: Tensor | None) -> Tree:
    """Children below nodes: ranked, drawn, or drawn without replacement.

    Args:
        batch: the requests, for their sampling settings.
        op: counts of children and the way they come about.
        tree: the tree that grows.
        at: the parents.
        rows: logits of the parents.
        by: `[B, draws]` uniforms, parent by parent.
    """
    counts = (op.children,) * len(at.indices) if isinstance(op.children, int) else op.children
    logits = rows.of(at.indices)
    if op.how == "best":
        ranked = best(logits, max(counts, default=0)) if any(counts) else logits[:, :, :0].long()
        tokens = torch.cat([ranked[:, i, :count] for i, count in enumerate(counts)], 1)
        return _extended(tree, at, counts, tokens)
    if by is None:
        raise AssertionError("the verifier lets no draw without uniforms through")
    laws = law(logits, batch.settings)
    drawn, start = [], 0
    for place, count in enumerate(counts):
        mine, uniforms = laws[:, place], by[:, start : start + count]
        if op.how == "draw_distinct":
            drawn.append(draw_distinct(mine[:, None], uniforms[:, None])[:, 0])
        else:
            drawn.append(draw(mine[:, None].expand(-1, count, -1), uniforms))
        start += count
    known = 0 if tree.laws is None else tree.laws.shape[1]
    grown = _extended(tree, at, counts, torch.cat(drawn, 1))
    index = [known + place for place, count in enumerate(counts) for _ in range(count)]
    return replace(
        grown,
        laws=laws if tree.laws is None else torch.cat([tree.laws, laws], 1),
        law_index=(*tree.law_index, *index),
        distinct=op.how == "draw_distinct",
    )


def lookup(batch: Batch, op: Lookup, tree: Tree, at: Nodes) -> Tree:
    """A chain below the root: what followed the text's last tokens earlier in it."""
    shortest, longest = (op.match[0], op.match[-1]) if op.match else (1, 3)
    tokens, counts = lookup_batch(
        batch.text.cpu().numpy(),
        batch.length_tensor().cpu().numpy(),
        shortest=shortest,
        longest=longest,
        length=op.length,
    )
    found = torch.from_numpy(tokens).to(batch.device)
    live = torch.arange(op.length)[None] < torch.from_numpy(counts)[:, None]
    grown = tree
    for level in range(op.length):
        parent = at.indices[0] if level == 0 else grown.size - 1
        grown = _extended(grown, Nodes(grown, (parent,)), (1,), found[:, level : level + 1])
    return replace(grown, live=live.to(batch.device), newest=tuple(range(tree.size, grown.size)))


def _extended(tree: Tree, at: Nodes, counts: tuple[int, ...], tokens: Tensor) -> Tree:
    """The tree with `counts[i]` children below node i of `at`; they carry point laws."""
    if not any(counts):
        return tree
    parents = tuple(
        node for node, count in zip(at.indices, counts, strict=True) for _ in range(count)
    )
    depths = tuple(1 if parent < 0 else tree.depths[parent] + 1 for parent in parents)
    return replace(
        tree,
        tokens=torch.cat([tree.tokens, tokens], 1) if tree.size else tokens,
        parents=(*tree.parents, *parents),
        depths=(*tree.depths, *depths),
        law_index=(*tree.law_index, *(-1 for _ in parents)),
        newest=tuple(range(tree.size, tree.size + len(parents))),
    )
