"""What sources are asked and taught: their side of `lookup` and `update`, on the host."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

import numpy as np
import torch
from torch import Tensor

from specplan.backends.eager.batch import Batch
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.reshaping import counts_of
from specplan.backends.ops.values import Nodes, Rows, Tree
from specplan.ir.ops import Lookup, Update
from specplan.ir.values import TEXT_STATE
from specplan.runtime.sampling import best
from specplan.runtime.sources.source import Found, Tokens, Wanted
from specplan.runtime.sources.text import lookup as lookup_text
from specplan.runtime.sources.text import lookup_batch
from specplan.runtime.sources.use import SourceUse

TEXT_MATCH = (1, 3)
"""Suffixes looked for in the text where a plan does not say."""


def wanted_of(op: Lookup, width: int) -> Wanted:
    """What the op asks for below so many nodes; what needs no merging stands side by side."""
    children = max(counts_of(op.children, width))
    match = op.match or (TEXT_MATCH if op.source == TEXT_STATE else (1, 1))
    merged = op.nodes is not None and op.nodes < children * op.length
    return Wanted(match[0], match[-1], children, op.length, op.nodes if merged else None)


def asked(batch: Batch, op: Lookup, at: Nodes, wanted: Wanted) -> Continuations:
    """What a source, or the text itself, has below W nodes."""
    longest = None if op.source == TEXT_STATE else wanted.longest
    texts, lengths = _texts(batch, at, longest)
    if op.source == TEXT_STATE:
        found = _in_texts(texts, lengths, wanted)
    else:
        found = batch.sources[op.source].lookup(texts, lengths, wanted)
    parts = (found.tokens, found.parents, found.live)
    tokens, parents, live = (torch.from_numpy(part).to(batch.device) for part in parts)
    return tokens, parents, live


def _texts(batch: Batch, at: Nodes, longest: int | None) -> tuple[Tokens, Tokens]:
    """What is looked up at each of W nodes: texts `[B * W, S]`, and their lengths.

    Where only the last tokens matter, the others are left out but for those of whole texts.
    """
    text, lengths = batch.text.cpu().numpy(), np.array(batch.lengths)
    if isinstance(at.at, range) and at.at == range(1):
        return text, lengths
    lines = at.tree.lines(at.columns)
    requests, width, levels = lines.shape
    tokens = at.tree.tokens.gather(1, lines.flatten(1)).view_as(lines).flip(2).cpu().numpy()
    depths = at.take(at.tree.depths).cpu().numpy()
    first = 0 if longest is None else np.maximum(lengths - longest, 0).min()
    size = int(lengths.max()) - int(first)
    whole = np.zeros((requests, width, size + levels), dtype=np.int64)
    ends = np.empty((requests, width), dtype=np.int64)
    for row, length in enumerate(lengths):
        own = text[row, first:length]
        whole[row, :, : len(own)] = own
        for place in range(width):
            depth = int(depths[row, place])
            end = len(own) + depth
            whole[row, place, len(own) : end] = tokens[row, place, levels - depth :]
            ends[row, place] = end
    return whole.reshape(requests * width, -1), ends.reshape(-1)


def _in_texts(texts: Tokens, lengths: Tokens, wanted: Wanted) -> Found:
    """Continuations of each text in itself."""
    if wanted.children == 1:
        tokens, counts = lookup_batch(
            texts, lengths, shortest=wanted.shortest, longest=wanted.longest, length=wanted.length
        )
        live = np.arange(wanted.length) < counts[:, None]
        return Found(tokens, Found.nothing(len(texts), wanted).parents, live)
    found = Found.nothing(len(texts), wanted)
    for row, length in enumerate(lengths):
        for place, run in enumerate(_runs_in(texts[row, :length], wanted)):
            start = place * wanted.length
            found.tokens[row, start : start + len(run)] = run
            found.live[row, start : start + len(run)] = True
    return found


def _runs_in(text: Tokens, wanted: Wanted) -> list[Tokens]:
    """Continuations with first tokens of their own: the best, then the latest of any match."""
    best_run = lookup_text(
        text, shortest=wanted.shortest, longest=wanted.longest, length=wanted.length
    )
    runs = [best_run] if len(best_run) else []
    tail = text[len(text) - wanted.shortest :]
    for end in range(len(text) - 1, wanted.shortest - 1, -1):
        if len(runs) == wanted.children:
            break
        run = text[end : end + wanted.length]
        alike = (text[end - len(tail) : end] == tail).all()
        if alike and all(run[0] != other[0] for other in runs):
            runs.append(run)
    return runs


def update(batch: Batch, op: Update, tree: Tree, rows: Rows | None) -> None:
    """Teach a source rows of judged nodes, the text up to the root, or runs of drafted nodes."""
    use = batch.sources[op.source]
    active = [row for row in range(batch.size) if not batch.done[row] or batch.emitted(row)]
    if rows is not None and not use.width:
        return  # it learns nothing of rows
    if rows is not None:
        _teach_rows(use, active, tree, rows)
    elif tree.size:
        _teach_runs(batch, use, active, tree, op.last or 1)
    else:
        text = batch.text.cpu().numpy()
        for row in active:
            use.learn_text(row, text[row, : batch.starts[row]], op.last or 1)


def _teach_rows(use: SourceUse, active: Sequence[int], tree: Tree, rows: Rows) -> None:
    """The likeliest tokens after the root and after nodes that were judged."""
    logits, known = rows.of(tree.everything)
    likeliest = best(logits, min(use.width, logits.shape[2])).cpu().numpy()
    tokens, live = tree.tokens.cpu().numpy(), (tree.live & known).cpu().numpy()
    for row in active:
        use.learn_rows(row, tokens[row][live[row]], likeliest[row][live[row]])


def _teach_runs(batch: Batch, use: SourceUse, active: Sequence[int], tree: Tree, last: int) -> None:
    """The last tokens on the path to each leaf, text before the round among them."""
    text, tokens = batch.text.cpu().numpy(), tree.tokens.cpu().numpy()
    live, parents = tree.live.cpu().numpy(), tree.parents.cpu().numpy()
    for row in active:
        inner = {int(parent) for parent in parents[row][1:]}
        runs = []
        for leaf in range(1, tree.columns):
            if leaf in inner or not live[row, leaf]:
                continue
            path, node = list[int](), leaf
            while node:
                path.append(int(tokens[row, node]))
                node = int(parents[row, node])
            start = batch.starts[row]
            before = text[row, max(start - max(last - len(path), 0), 0) : start]
            runs.append(np.concatenate([before, np.array(path[::-1][-last:], dtype=np.int64)]))
        use.learn_runs(row, runs)


def close(text: Tensor, lengths: Sequence[int], sources: MutableMapping[str, SourceUse]) -> None:
    """End the texts `[B, S]` that sources learn."""
    ended = text.cpu().numpy()
    for use in sources.values():
        use.close([ended[row, :length] for row, length in enumerate(lengths)])
    sources.clear()
