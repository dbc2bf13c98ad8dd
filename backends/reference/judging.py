"""The ops that end a round: `accept`, `emit` and `commit`."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.reference.batch import Batch, CacheUse
from specplan.backends.reference.values import Path, Rows, Tree
from specplan.ir.ops import Accept
from specplan.ir.types import ROOT
from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.sampling import law


def accept(batch: Batch, op: Accept, tree: Tree, target: Rows, by: Tensor | None) -> Path:
    """Judge a tree by a rule.

    Args:
        batch: the requests, for their sampling settings.
        op: names the rule.
        tree: what was drafted.
        target: logits of the root and of all nodes.
        by: at least `[B, N + 1]` uniforms for rules that draw.
    """
    rule = RULES[op.rule.name]
    rows = target.of((ROOT, *range(tree.size)))
    if rule.TARGET == "law":
        rows = law(rows, batch.settings)
    drafted = DraftedTree(
        tokens=tree.tokens,
        parents=tree.parents,
        live=tree.live,
        laws=tree.laws,
        law_index=tree.law_index,
        distinct=tree.distinct,
    )
    judged = rule.accept(drafted, rows, by if by is None else by[:, : tree.size + 1])
    paths, accepted = judged.path.tolist(), judged.accepted.tolist()
    bonuses, tokens = judged.bonus.tolist(), tree.tokens.tolist()
    nodes = [path[:count] for path, count in zip(paths, accepted, strict=True)]
    return Path(
        nodes,
        [[tokens[row][node] for node in path] + [bonuses[row]] for row, path in enumerate(nodes)],
        len(set(tree.parents)) == tree.size,
    )


def emit(batch: Batch, path: Path) -> Path:
    """Append paths to the texts, cut at stop tokens and limits; gives the cut paths."""
    kept = [batch.append(row, tokens) for row, tokens in enumerate(path.tokens)]
    nodes = [path.nodes[row][: len(tokens)] for row, tokens in enumerate(kept)]
    return Path(nodes, kept, path.chain)


def commit(cache: CacheUse, path: Path) -> None:
    """Make the resident prefix of each emitted path permanent, and drop the rest.

    An accepted node that does not stand in the slot of its position is moved there; a chain is in
    place already.
    """
    sources, targets = [], []
    for row, nodes in enumerate(path.nodes):
        start = cache.lengths[row]
        source: list[int] = []
        for node in nodes:
            if node not in cache.offsets:
                break
            source.append(start + cache.offsets[node])
        cache.lengths[row] = start + len(source)
        sources.append(source)
        targets.append(list(range(start, start + len(source))))
    if sources != targets:
        _move(cache, sources, targets)


def _move(cache: CacheUse, sources: list[list[int]], targets: list[list[int]]) -> None:
    width = max(len(row) for row in sources)
    trash, device = cache.store.trash, cache.store.positions.device

    def padded(rows: list[list[int]]) -> Tensor:
        filled = [row + [trash] * (width - len(row)) for row in rows]
        return torch.tensor(filled, dtype=torch.int64, device=device)

    cache.store.move(padded(sources), padded(targets))
