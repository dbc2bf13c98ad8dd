"""The ops on sources: `lookup`, which grows a tree, and `update`, which teaches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specplan.backends.reference.batch import Batch
from specplan.backends.reference.lengthening import continue_chains
from specplan.backends.reference.values import (
    Nodes,
    Rows,
    Tree,
    live_mask,
    per_request,
    shared_by_all,
)
from specplan.ir.ops import Lookup, Update
from specplan.ir.types import ROOT
from specplan.ir.values import TEXT_STATE
from specplan.runtime.sampling import best
from specplan.runtime.sources.source import Found, Tokens, Wanted
from specplan.runtime.sources.text import lookup_batch

TEXT_MATCH = (1, 3)
"""Suffixes looked for in the text where a plan does not say."""


def lookup(batch: Batch, op: Lookup, tree: Tree, at: Nodes, *, scored: bool = False) -> Tree:
    """What a source, or the text itself, has below nodes.

    Below the root of an empty tree, and below the tip of a chain, whole texts are looked up, what
    was drafted included; below other drafted nodes single tokens.

    Args:
        batch: the requests.
        op: what is wanted.
        tree: the tree that grows.
        at: nodes of it.
        scored: continuations side by side below the root get path scores, those of certain tokens.
    """
    width = 1 if isinstance(at.indices, Tensor) else len(at.indices)
    counts = op.children if isinstance(op.children, tuple) else (op.children,) * width
    wanted = wanted_of(op, max(counts))
    texts, lengths = _texts(batch, tree, at)
    if op.source == TEXT_STATE:
        found = _in_texts(texts, lengths, wanted)
    else:
        found = batch.sources[op.source].lookup(texts, lengths, wanted)
    if isinstance(at.indices, Tensor):
        tokens, live = (torch.from_numpy(x).to(batch.device) for x in (found.tokens, found.live))
        return continue_chains(tree, at.indices[:, 0] + 1, tokens, live, wanted.length)
    if wanted.nodes is not None:
        return _merged(batch, tree, found, wanted)
    grown = _side_by_side(batch, tree, shared_by_all(at.indices), counts, found, wanted.length)
    return certain(grown) if scored and not tree.size else grown


def certain(tree: Tree) -> Tree:
    """The tree with the path scores of tokens that are sure to follow; dead ones have the worst."""
    live = live_mask(tree)
    return replace(tree, scores=torch.zeros(live.shape, device=live.device).where(live, -torch.inf))


def kind(batch: Batch, source: str) -> str:
    """What a source is called among sources; "" for the text."""
    return batch.sources[source].kind if source in batch.sources else ""


def update(batch: Batch, op: Update, tree: Tree, rows: Rows | None) -> None:
    """Teach a source rows of judged nodes, the text up to the root, or runs of drafted nodes."""
    use = batch.sources[op.source]
    active = [row for row in range(batch.size) if not batch.done[row] or batch.emitted(row)]
    text = batch.text.cpu().numpy()
    if rows is None and tree.size:
        for row, runs in enumerate(_runs(batch, tree, op.last or 1)):
            if row in active:
                use.learn_runs(row, runs)
        return
    if rows is None:
        for row in active:
            use.learn_text(row, text[row, : batch.starts[row]], op.last or 1)
        return
    logits = rows.of((ROOT, *range(tree.size)))
    likeliest = best(logits, min(use.width, logits.shape[2])).cpu().numpy()
    drafted = tree.tokens.cpu().numpy()
    live = np.ones(drafted.shape, dtype=np.bool_) if tree.live is None else tree.live.cpu().numpy()
    for row in active:
        tokens = np.concatenate([text[row, batch.starts[row] - 1][None], drafted[row]])
        judged = np.concatenate([[True], live[row]])
        use.learn_rows(row, tokens[judged], likeliest[row][judged])


def _runs(batch: Batch, tree: Tree, last: int) -> list[list[Tokens]]:
    """Of each request, the last tokens on the path to each live leaf, the root's among them."""
    assert isinstance(tree.parents, tuple)
    tokens = torch.cat([batch.text, tree.tokens], 1).cpu().numpy()  # nodes behind the text
    live, size = live_mask(tree).cpu().numpy(), batch.text.shape[1]
    leaves = [node for node in range(tree.size) if node not in tree.parents]
    paths = {node: tree.ancestors(node)[:last][::-1] for node in leaves}
    return [
        [
            tokens[row, [start - 1] * (len(paths[n]) < last) + [size + node for node in paths[n]]]
            for n in leaves
            if live[row, n]
        ]
        for row, start in enumerate(batch.starts)
    ]


def close(batch: Batch) -> None:
    """End the texts that sources learn."""
    text = batch.text.cpu().numpy()
    for use in batch.sources.values():
        use.close([text[row, :length] for row, length in enumerate(batch.lengths)])
    batch.sources.clear()


def continued(texts: Tokens, lengths: Tokens, wanted: Wanted) -> tuple[Tokens, Tokens]:
    """What followed the last tokens of texts `[B, S]` of `lengths` `[B]` earlier in them.

    Returns:
        Tokens `[B, length]`, and how many of them were found `[B]`.
    """
    return lookup_batch(
        texts, lengths, shortest=wanted.shortest, longest=wanted.longest, length=wanted.length
    )


def wanted_of(op: Lookup, children: int) -> Wanted:
    """What the op asks for; continuations that need no merging stand side by side."""
    match = op.match or (TEXT_MATCH if op.source == TEXT_STATE else (1, 1))
    merged = op.nodes is not None and op.nodes < children * op.length
    return Wanted(match[0], match[-1], children, op.length, op.nodes if merged else None)


def _in_texts(texts: Tokens, lengths: Tokens, wanted: Wanted) -> Found:
    """The continuation of each text in itself."""
    tokens, counts = continued(texts, lengths, wanted)
    live = np.arange(wanted.length) < counts[:, None]
    return Found(tokens, Found.nothing(len(texts), wanted).parents, live)


def _texts(batch: Batch, tree: Tree, at: Nodes) -> tuple[Tokens, Tokens]:
    """What is looked up at each of W nodes: texts `[B * W, S]`, and their lengths."""
    text, lengths = batch.text.cpu().numpy(), np.array(batch.starts)
    if at.indices == (ROOT,):
        return text, lengths
    if isinstance(at.indices, Tensor) or (tree.is_chain and at.indices == (tree.size - 1,)):
        drafted = per_request(at.indices, tree.tokens).cpu().numpy()[:, 0] + 1
        longer = np.pad(text, ((0, 0), (0, tree.size)))
        places = np.arange(tree.size)
        columns = np.where(places < drafted[:, None], lengths[:, None] + places, -1)
        np.put_along_axis(longer, columns, tree.tokens.cpu().numpy(), 1)
        return longer, lengths + drafted
    roots = text[np.arange(batch.size), lengths - 1][:, None]
    tokens = np.concatenate([roots, tree.tokens.cpu().numpy()], 1)
    tokens = tokens[:, [node + 1 for node in at.indices]]
    return tokens.reshape(-1, 1), np.ones(tokens.size, dtype=np.int64)


def _merged(batch: Batch, tree: Tree, found: Found, wanted: Wanted) -> Tree:
    """A tree of its own for each request."""
    parents = torch.from_numpy(found.parents)
    depths = torch.zeros_like(parents)
    for node in range(parents.shape[1]):
        above = parents[:, node : node + 1]
        own = torch.where(above == ROOT, 0, depths.gather(1, above.clamp(min=0)))
        depths[:, node : node + 1] = own + 1
    size = parents.shape[1]
    return replace(
        tree,
        tokens=torch.from_numpy(found.tokens).to(batch.device),
        parents=parents.to(batch.device),
        depths=depths.to(batch.device),
        live=torch.from_numpy(found.live).to(batch.device),
        law_index=(-1,) * size,
        newest=tuple(range(size)),
        levels=wanted.length,
    )


def _side_by_side(
    batch: Batch,
    tree: Tree,
    at: tuple[int, ...],
    counts: tuple[int, ...],
    found: Found,
    length: int,
) -> Tree:
    """The tree with chains below nodes, as many as each gets."""
    parents, depths = list(shared_by_all(tree.parents)), list(shared_by_all(tree.depths))
    columns: list[int] = []
    above: list[int] = []
    widest = max(counts) * length
    for place, (node, count) in enumerate(zip(at, counts, strict=True)):
        for chain in range(count):
            depth = 0 if node == ROOT else depths[node]
            parents += [node, *range(len(parents), len(parents) + length - 1)]
            depths += range(depth + 1, depth + length + 1)
            columns += range(place * widest + chain * length, place * widest + (chain + 1) * length)
            above += [node] * length
    tokens = torch.from_numpy(found.tokens).view(batch.size, -1)[:, columns].to(batch.device)
    live = torch.from_numpy(found.live).view(batch.size, -1)[:, columns].to(batch.device)
    known = live_mask(tree)
    begun = torch.cat([torch.ones_like(live[:, :1]), known], 1)  # the root first
    live = live & begun[:, [node + 1 for node in above]]
    return replace(
        tree,
        tokens=torch.cat([tree.tokens, tokens], 1),
        parents=tuple(parents),
        depths=tuple(depths),
        live=torch.cat([known, live], 1),
        law_index=(*shared_by_all(tree.law_index), *(-1 for _ in columns)),
        newest=tuple(range(tree.size, len(parents))),
        levels=max(depths, default=0),
        scores=None,
    )
