"""What the host looks up and teaches around a round's one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.backends.reference import choosing, looking
from specplan.backends.reference.values import Scope, Tree, held_as, nodes_as
from specplan.backends.static.hosted import handed_out
from specplan.backends.static.interface import Taught
from specplan.ir.ops import Lookup, Op, Pick, Root, Segment, Update
from specplan.runtime.sources.use import SourceUse


@dataclass(frozen=True)
class Texts:
    """Texts as a round finds them; see `specplan.backends.reference.looking.Asking`."""

    text: Tensor
    starts: list[int]
    done: list[bool]
    sources: Mapping[str, SourceUse]

    def emitted(self, row: int) -> bool:
        """No text has grown yet."""
        return False


def run_hosted(texts: Texts, ops: Sequence[Op], scored: bool) -> list[looking.Continuations]:
    """Run ops in order.

    Args:
        texts: on the CPU.
        ops: as `specplan.backends.static.hosted.host_ops` has them first.
        scored: some op of the plan asks for path scores.

    Returns:
        What each lookup found, `[B, N]`.
    """
    scope: Scope = {}
    found: list[looking.Continuations] = []
    for op in ops:
        match op:
            case Root():
                scope[op.results[0]] = Tree(texts.text[:, :0])
            case Pick():
                scope[op.results[0]] = choosing.pick(op, held_as(scope, op.tree, Tree), None)
            case Segment():
                known = {out: scope[own] for out, own in handed_out(op) if own in scope}
                scope.update(known)
            case Update():
                looking.update(texts, op, held_as(scope, op.tree, Tree), None)
            case Lookup():
                tree, at = held_as(scope, op.tree, Tree), nodes_as(scope, op.at)
                parts = looking.asked(texts, op, tree, at)
                scope[op.results[0]] = looking.placed(op, tree, at, parts, scored=scored)
                tokens, parents, live = (part.reshape(len(texts.starts), -1) for part in parts)
                found.append((tokens, parents, live))
    return found


def joined(found: Sequence[looking.Continuations], rows: int) -> looking.Continuations:
    """What all lookups found side by side, for a batch of `rows` that may be filled up."""
    if not found:
        nothing = torch.zeros(rows, 1, dtype=torch.int64)
        return nothing, nothing, torch.zeros(rows, 1, dtype=torch.bool)
    tokens, parents, live = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    more = (0, 0, 0, rows - len(tokens))
    pad = torch.nn.functional.pad
    return pad(tokens, more), pad(parents, more), pad(live, more)


def teach(texts: Texts, taught: Sequence[Taught], told: Tensor) -> None:
    """Teach sources what a round has told of.

    Args:
        texts: as they were before it.
        taught: what they learn.
        told: numbers of each request, int64 `[B, ...]`.
    """
    parts = told[: len(texts.starts)].split([one.told for one in taught], 1)
    for one, numbers in zip(taught, parts, strict=True):
        if not one.width:
            tokens, live = numbers.split([one.nodes, one.nodes], 1)
            tree = Tree(tokens, one.parents, live=live > 0)
            looking.update(texts, one.op, tree, None)
            continue
        count = one.nodes + 1
        tokens, live, likeliest = numbers.split([count, count, count * one.width], 1)
        likeliest = likeliest.unflatten(1, (count, one.width))
        active = [row for row, done in enumerate(texts.done) if not done]
        use = texts.sources[one.op.source]
        looking.teach_rows(use, active, (tokens, live > 0, likeliest))
