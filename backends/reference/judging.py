"""The ops that end a round: `accept`, `emit` and `commit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from specplan.backends.reference.batch import Batch
from specplan.backends.reference.caches import CacheUse, TrackUse, padded
from specplan.backends.reference.lengthening import as_far_as_known, below, judged_below
from specplan.backends.reference.values import Path, Rows, Tree
from specplan.ir.ops import Accept
from specplan.ir.tables import BUILTIN
from specplan.ir.types import ROOT
from specplan.runtime.acceptance import RULES, DraftedTree, Judged
from specplan.runtime.sampling import SamplingSettings, law

Form: TypeAlias = Callable[[str], Callable[..., Judged]]
"""From a rule's name to one of its forms: see `specplan.runtime.acceptance`."""


def _eager(rule: str) -> Callable[..., Judged]:
    """The fastest form for where it runs."""
    return RULES[rule].accept  # type: ignore[no-any-return]


def judge(
    settings: SamplingSettings,
    op: Accept,
    tree: Tree,
    target: Rows,
    by: Tensor | None,
    form: Form = _eager,
) -> Judged:
    """Judge a tree by a rule.

    Args:
        settings: of the requests.
        op: names the rule.
        tree: what was drafted.
        target: logits of the root and of all nodes.
        by: at least `[B, N + 1]` uniforms for rules that draw.
        form: of the rule.
    """
    rule = RULES[op.rule.name]
    rows = target.of((ROOT, *range(tree.size)))
    if rule.TARGET == "law":
        rows = law(rows, settings)
    drafted = DraftedTree(
        tokens=tree.tokens,
        parents=tree.parents,
        live=tree.live,
        laws=tree.laws,
        law_index=tree.law_index,
        distinct=tree.distinct,
        levels=tree.levels if tree.own else None,
        widest=tree.widest if tree.own and tree.widest else None,
    )
    declared = BUILTIN.find("rule", op.rule.name)
    assert declared is not None
    drawn = by if by is None else by[:, : tree.size + 1]
    return form(op.rule.name)(drafted, rows, drawn, **declared.arguments(op.rule))


def accept(batch: Batch, op: Accept, tree: Tree, target: Rows, by: Tensor | None) -> Path:
    """What a rule accepts; arguments as of `judge`."""
    if tree.own and tree.is_chain:
        return _accept_known(batch, op, tree, target, by)
    judged = judge(batch.settings, op, tree, target, by)
    paths, accepted = judged.path.tolist(), judged.accepted.tolist()
    bonuses, tokens = judged.bonus.tolist(), tree.tokens.tolist()
    nodes = [path[:count] for path, count in zip(paths, accepted, strict=True)]
    kept = [[tokens[row][node] for node in path] for row, path in enumerate(nodes)]
    if tree.numbers is not None or tree.first:
        numbers = tree.numbers_of(judged.path.clamp(min=0)).tolist()
        nodes = [path[:count] for path, count in zip(numbers, accepted, strict=True)]
    return Path(nodes, [[*path, bonuses[row]] for row, path in enumerate(kept)], tree.is_chain)


def _accept_known(batch: Batch, op: Accept, tree: Tree, target: Rows, by: Tensor | None) -> Path:
    """The same of a chain of each request's own, which may have rows for some nodes only.

    A node without a row ends the path, with no bonus: what follows it has a row in a later round.
    """
    first, rows, places, has_row = as_far_as_known(tree, target)
    judged = judge(batch.settings, op, first, rows, by)
    numbers, known = tree.numbers_of(places).tolist(), has_row.tolist()
    nodes, kept = [], []
    for row, tokens in enumerate(first.tokens.tolist()):
        count = int(judged.accepted[row])
        nodes.append(numbers[row][:count])
        ended = count > 0 and not known[row][count - 1]
        kept.append([*tokens[:count], *([] if ended else [int(judged.bonus[row])])])
    return Path(nodes, kept, chain=True)


def accept_below(batch: Batch, op: Accept, tree: Tree, rows: Rows, by: Tensor | None) -> Path:
    """What a rule accepts of a chain below the first node of `rows`."""
    inner, target = below(tree, rows)
    return judged_below(tree, rows, judge(batch.settings, op, inner, target, by))


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
    for row, slots in enumerate(cache.resident_slots(path.nodes)):
        start = cache.lengths[row] - cache.forgotten[row]
        cache.lengths[row] += len(slots)
        sources.append([start + slot for slot in slots])
        targets.append(list(range(start, start + len(slots))))
    if sources != targets:
        store = cache.store
        store.move(*padded(sources, targets, store.trash, store.positions.device))
    cache.forget()


def commit_track(batch: Batch, track: TrackUse, path: Path) -> None:
    """The same for recorded hidden states: those of emitted nodes go to the slots of the text."""
    if track.cache is None:
        return
    sources, targets = [], []
    for row, nodes in enumerate(path.nodes):
        start = batch.starts[row]
        source = [start + track.cache.offsets[n] for n in nodes if n in track.held]
        sources.append(source)
        targets.append(list(range(start, start + len(source))))
    if sources != targets:
        track.move(*padded(sources, targets, track.trash, track.store.device))
