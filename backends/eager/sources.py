"""The ops `lookup` and `update` on the host: sources are queried, and learn."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specplan.backends.ops.lookup import Continuations, merges
from specplan.backends.ops.tensors.trees import counts_of
from specplan.backends.ops.tensors.values import Logits, Nodes, Tree
from specplan.ir.ops import Lookup, Update
from specplan.ir.values import TEXT_STATE
from specplan.runtime.sampling import best
from specplan.runtime.sources.registry import BatchSource
from specplan.runtime.sources.source import SourceDrafts, Tokens, Wanted
from specplan.runtime.sources.text import continuations, match_of

if TYPE_CHECKING:
    from specplan.backends.eager.state.batch import Batch


def wanted_of(op: Lookup, width: int) -> Wanted:
    """What the op asks for below so many nodes; what needs no merging stands side by side."""
    children = max(counts_of(op.children, width))
    match = match_of(op.source, op.match)
    nodes = op.nodes if merges(op) else None
    return Wanted(match[0], match[-1], children, op.length, nodes)


def continuations_below(batch: Batch, op: Lookup, at: Nodes) -> Continuations:
    """What a source, or the text itself, has below W nodes."""
    wanted = wanted_of(op, at.width)
    longest = None if op.source == TEXT_STATE else wanted.longest
    answer = ask(batch, op, wanted, *_texts(batch, at, longest))
    parts = (answer.tokens, answer.parents, answer.live)
    tokens, parents, live = (torch.from_numpy(part).to(at.tree.tokens.device) for part in parts)
    return tokens, parents, live


def ask(batch: Batch, op: Lookup, wanted: Wanted, texts: Tokens, lengths: Tokens) -> SourceDrafts:
    """What a source, or the text itself, has behind texts `[B * W, S]` of some lengths."""
    if op.source == TEXT_STATE:
        return _in_texts(texts, lengths, wanted)
    return batch.sources[op.source].lookup(texts, lengths, wanted)


def texts_of(batch: Batch) -> tuple[Tokens, Tokens]:
    """All texts `[B, S]`, and their lengths."""
    return batch.text.cpu().numpy(), np.array(batch.lengths)


def _texts(batch: Batch, at: Nodes, longest: int | None) -> tuple[Tokens, Tokens]:
    """What is looked up at each of W nodes: texts `[B * W, S]`, and their lengths.

    Where only the last tokens matter, the others are left out but for those of whole texts.
    """
    text, lengths = texts_of(batch)
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


def _in_texts(texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
    """Continuations of each text in itself."""
    rows = zip(texts, lengths, strict=True)
    return SourceDrafts.stacked([continuations(text[:length], wanted) for text, length in rows])


def update(batch: Batch, op: Update, tree: Tree, rows: Logits | None) -> None:
    """Teach a source logits of judged nodes, the text up to the root, or drafted paths."""
    use = batch.sources[op.source]
    if rows is not None:
        if use.width:  # others learn nothing of rows
            parts = judged_tokens(tree, rows, use.width)
            teach_logits(batch, op, *(part.cpu().numpy() for part in parts))
    elif tree.size:
        runs = (tree.tokens, tree.parents, tree.live)
        teach_paths(batch, op, *(part.cpu().numpy() for part in runs))
    else:
        teach_text(batch, op)


def teach_text(batch: Batch, op: Update) -> None:
    """Teach a source the texts up to the root."""
    text = batch.text.cpu().numpy()
    for row in _active(batch):
        known = text[row, : batch.starts[row]]
        batch.sources[op.source].learn_text(row, known, op.last or 1)


def _active(batch: Batch) -> list[int]:
    return [row for row, done in enumerate(batch.done) if not done or batch.emitted(row)]


def judged_tokens(tree: Tree, rows: Logits, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """What a source learns of rows: the root and all nodes, which were judged, and what follows.

    Args:
        tree: that was judged.
        rows: of its nodes.
        width: likeliest tokens of each row.

    Returns:
        Tokens `[B, 1 + N]`, which of them count, and the likeliest after each, `[B, 1 + N, width]`.
    """
    logits, known = rows.of(tree.everything)
    return tree.tokens, tree.live & known, best(logits, min(width, logits.shape[2]))


def teach_logits(batch: Batch, op: Update, tokens: Tokens, live: Tokens, likeliest: Tokens) -> None:
    """Teach a source what `judged_tokens` gives."""
    use = batch.sources[op.source]
    for row in _active(batch):
        use.each[row].learn_rows(tokens[row][live[row]], likeliest[row][live[row]])


def teach_paths(batch: Batch, op: Update, tokens: Tokens, parents: Tokens, live: Tokens) -> None:
    """Teach a source the last tokens on the path from the root, which is one of them, to each leaf.

    Args:
        batch: the texts.
        op: says how many tokens.
        tokens: of the root and all nodes, `[B, 1 + N]`.
        parents: columns, `[B, 1 + N]`.
        live: bool `[B, 1 + N]`.
    """
    text, last = batch.text.cpu().numpy(), op.last or 1
    for row in _active(batch):
        inner = {int(parent) for parent in parents[row][1:][live[row][1:]]}
        runs = []
        for leaf in range(1, tokens.shape[1]):
            if leaf in inner or not live[row, leaf]:
                continue
            path, node = list[int](), leaf
            while node:
                path.append(int(tokens[row, node]))
                node = int(parents[row, node])
            start = batch.starts[row]
            run = [int(text[row, start - 1]), *path[::-1]]
            runs.append(np.array(run[-last:], dtype=np.int64))
        batch.sources[op.source].each[row].learn_runs(runs)


def close(text: Tensor, lengths: Sequence[int], sources: MutableMapping[str, BatchSource]) -> None:
    """End the texts `[B, S]` that sources learn."""
    ended = text.cpu().numpy()
    for use in sources.values():
        use.close([ended[row, :length] for row, length in enumerate(lengths)])
    sources.clear()
