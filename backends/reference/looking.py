"""The ops on sources: `lookup`, which grows a tree, and `update`, which teaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

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
from specplan.runtime.sources.use import SourceUse

TEXT_MATCH = (1, 3)
"""Suffixes looked for in the text where a plan does not say."""


class Asking(Protocol):
    """Texts of requests, and the sources that are asked about them and taught."""

    @property
    def text(self) -> Tensor:
        """Int64 `[B, S]`."""
        ...

    @property
    def starts(self) -> Sequence[int]:
        """Tokens of each text when the round began."""
        ...

    @property
    def done(self) -> Sequence[bool]:
        """Requests that want no more tokens."""
        ...

    @property
    def sources(self) -> Mapping[str, SourceUse]:
        """By the name of the state."""
        ...

    def emitted(self, row: int) -> bool:
        """Whether a row's text grew in this round."""
        ...


Continuations: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Tokens, parents and live mask as `Found` has them, `[B * W, N]` or `[B, W * N]`."""


def lookup(batch: Asking, op: Lookup, tree: Tree, at: Nodes, *, scored: bool = False) -> Tree:
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
    return placed(op, tree, at, asked(batch, op, tree, at), scored=scored)


def asked(batch: Asking, op: Lookup, tree: Tree, at: Nodes) -> Continuations:
    """What a source, or the text itself, has below W nodes; arguments as of `lookup`."""
    wanted = wanted_of(op, at)
    texts, lengths = _texts(batch, tree, at)
    if op.source == TEXT_STATE:
        found = _in_texts(texts, lengths, wanted)
    else:
        found = batch.sources[op.source].lookup(texts, lengths, wanted)
    parts = (found.tokens, found.parents, found.live)
    tokens, parents, live = (torch.from_numpy(part).to(batch.text.device) for part in parts)
    return tokens, parents, live


def placed(op: Lookup, tree: Tree, at: Nodes, found: Continuations, *, scored: bool) -> Tree:
    """The tree with what was found below nodes; arguments as of `lookup`."""
    wanted, (tokens, parents, live) = wanted_of(op, at), found
    if isinstance(at.indices, Tensor):
        return continue_chains(tree, at.indices[:, 0] + 1, tokens, live, wanted.length)
    if wanted.nodes is not None:
        return _merged(tree, tokens, parents, live, wanted)
    counts, length = _children(op, len(at.indices)), wanted.length
    grown = _side_by_side(tree, shared_by_all(at.indices), counts, tokens, live, length)
    return certain(grown) if scored and not tree.size else grown


def certain(tree: Tree) -> Tree:
    """The tree with the path scores of tokens that are sure to follow; dead ones have the worst."""
    live = live_mask(tree)
    return replace(tree, scores=torch.zeros(live.shape, device=live.device).where(live, -torch.inf))


def kind(batch: Asking, source: str) -> str:
    """What a source is called among sources; "" for the text."""
    return batch.sources[source].kind if source in batch.sources else ""


def update(batch: Asking, op: Update, tree: Tree, rows: Rows | None) -> None:
    """Teach a source rows of judged nodes, the text up to the root, or runs of drafted nodes."""
    use = batch.sources[op.source]
    active = [row for row in range(len(batch.starts)) if not batch.done[row] or batch.emitted(row)]
    if rows is not None:
        teach_rows(use, active, taught_rows(batch.text, batch.starts, tree, rows, use.width))
    elif tree.size:
        for row, runs in enumerate(_runs(batch, tree, op.last or 1)):
            if row in active:
                use.learn_runs(row, runs)
    else:
        text = batch.text.cpu().numpy()
        for row in active:
            use.learn_text(row, text[row, : batch.starts[row]], op.last or 1)


def taught_rows(
    text: Tensor, starts: Sequence[int] | Tensor, tree: Tree, rows: Rows, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What a source is taught of judged rows.

    Args:
        text: int64 `[B, S]`.
        starts: tokens of each text, the root among them.
        tree: what was judged.
        rows: of the root and of all its nodes.
        width: likeliest tokens that the source learns of a row.

    Returns:
        Tokens of the root and of the nodes, int64 `[B, 1 + N]`; which of them are live, bool;
        and the likeliest tokens after each, int64 `[B, 1 + N, width]`.
    """
    logits = rows.of((ROOT, *range(tree.size)))
    likeliest = best(logits, min(width, logits.shape[2]))
    last = torch.as_tensor(starts, device=text.device)[:, None] - 1
    tokens = torch.cat([text.gather(1, last), tree.tokens], 1)
    live = torch.cat([torch.ones_like(last, dtype=torch.bool), live_mask(tree)], 1)
    return tokens, live, likeliest


def teach_rows(
    use: SourceUse, active: Iterable[int], taught: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Teach a source what `taught_rows` gave, of the requests that took part."""
    tokens, live, likeliest = (part.cpu().numpy() for part in taught)
    for row in active:
        use.learn_rows(row, tokens[row][live[row]], likeliest[row][live[row]])


def _runs(batch: Asking, tree: Tree, last: int) -> list[list[Tokens]]:
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


def close(text: Tensor, lengths: Sequence[int], sources: MutableMapping[str, SourceUse]) -> None:
    """End the texts `[B, S]` that sources learn."""
    ended = text.cpu().numpy()
    for use in sources.values():
        use.close([ended[row, :length] for row, length in enumerate(lengths)])
    sources.clear()


def _children(op: Lookup, width: int) -> tuple[int, ...]:
    """Continuations of each of so many nodes."""
    return op.children if isinstance(op.children, tuple) else (op.children,) * width


def wanted_of(op: Lookup, at: Nodes) -> Wanted:
    """What the op asks for; continuations that need no merging stand side by side."""
    children = max(_children(op, 1 if isinstance(at.indices, Tensor) else len(at.indices)))
    match = op.match or (TEXT_MATCH if op.source == TEXT_STATE else (1, 1))
    merged = op.nodes is not None and op.nodes < children * op.length
    return Wanted(match[0], match[-1], children, op.length, op.nodes if merged else None)


def _in_texts(texts: Tokens, lengths: Tokens, wanted: Wanted) -> Found:
    """The continuation of each text in itself."""
    tokens, counts = lookup_batch(
        texts, lengths, shortest=wanted.shortest, longest=wanted.longest, length=wanted.length
    )
    live = np.arange(wanted.length) < counts[:, None]
    return Found(tokens, Found.nothing(len(texts), wanted).parents, live)


def _texts(batch: Asking, tree: Tree, at: Nodes) -> tuple[Tokens, Tokens]:
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
    roots = text[np.arange(len(text)), lengths - 1][:, None]
    tokens = np.concatenate([roots, tree.tokens.cpu().numpy()], 1)
    tokens = tokens[:, [node + 1 for node in at.indices]]
    return tokens.reshape(-1, 1), np.ones(tokens.size, dtype=np.int64)


def _merged(tree: Tree, tokens: Tensor, parents: Tensor, live: Tensor, wanted: Wanted) -> Tree:
    """A tree of its own for each request."""
    depths = torch.zeros_like(parents)
    for node in range(parents.shape[1]):
        above = parents[:, node : node + 1]
        own = torch.where(above == ROOT, 0, depths.gather(1, above.clamp(min=0)))
        depths[:, node : node + 1] = own + 1
    size = parents.shape[1]
    return replace(
        tree,
        tokens=tokens,
        parents=parents,
        depths=depths,
        live=live,
        law_index=(-1,) * size,
        newest=tuple(range(size)),
        levels=wanted.length,
    )


def _side_by_side(
    tree: Tree,
    at: tuple[int, ...],
    counts: tuple[int, ...],
    tokens: Tensor,
    live: Tensor,
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
    requests = tree.tokens.shape[0]
    tokens, live = (part.view(requests, -1)[:, columns] for part in (tokens, live))
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
