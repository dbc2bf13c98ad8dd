"""Trials of the sets of blocks that drafts can spare: what a forward leaves out, how it went."""

from __future__ import annotations

from specplan.backends.reference.batch import Batch
from specplan.backends.reference.values import Rows, Tree, live_mask
from specplan.ir.blocks import Skips
from specplan.ir.ops import Forward, Update
from specplan.ir.types import ROOT
from specplan.ir.values import State
from specplan.runtime.sampling import best


def found_so_far(batch: Batch, op: Forward, declared: Skips) -> Skips | None:
    """Blocks that a forward leaves out now, other than `declared` where a source says which.

    None of a trial that teaches nothing, and need not run.
    """
    if not isinstance(op.skip, State):
        return declared
    use = batch.sources[op.skip]
    return None if op.trial and not use.is_searching else use.left_out(op.trial)


def learn(batch: Batch, op: Update, tree: Tree, rows: Rows | None) -> None:
    """Teach a source of blocks how a trial went, as long as it searches.

    Args:
        batch: the requests, after the round has emitted.
        op: the update.
        tree: what was drafted in the round.
        rows: of its root and of all its nodes, by the model without the blocks on trial.
    """
    use = batch.sources[op.source]
    assert rows is not None, "the rules of sources see to it"
    if use.is_searching:
        use.learn_trial(*_matches(batch, tree, rows))


def _matches(batch: Batch, tree: Tree, rows: Rows) -> tuple[int, int]:
    """How many emitted tokens are the best ones of the node before them, and of how many.

    A node is compared where the text goes on as the path to it does.
    """
    assert isinstance(tree.parents, tuple)
    guesses = best(rows.of((ROOT, *range(tree.size))), 1)[:, :, 0].cpu().numpy()
    text, drafted, live = (x.cpu().numpy() for x in (batch.text, tree.tokens, live_mask(tree)))
    matched = scored = 0
    for row in range(batch.size):
        said = text[row, batch.starts[row] : batch.lengths[row]]
        reached = {ROOT: 0} if len(said) else {}
        for node, parent in enumerate(tree.parents):
            depth = reached.get(parent, len(said))
            if depth + 1 < len(said) and live[row, node] and drafted[row, node] == said[depth]:
                reached[node] = depth + 1
        matched += sum(int(guesses[row, 1 + node] == said[at]) for node, at in reached.items())
        scored += len(reached)
    return matched, scored
