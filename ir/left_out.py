"""Which blocks a forward leaves out, as far as that is known before it runs."""

from __future__ import annotations

from specplan.ir.blocks import Skips, spread
from specplan.ir.plan import Plan, SourceState
from specplan.ir.values import Entry, State


def left_out(plan: Plan, skip: tuple[str, ...] | State) -> Skips:
    """The blocks that a forward of a verified plan leaves out.

    Where a source says which, those that it begins with stand for all its sets: they have as many
    attentions and as many MLPs, and blocks of a model cost alike.
    """
    if not isinstance(skip, State):
        return Skips.read(skip)
    source = plan.state(skip)
    assert isinstance(source, SourceState), "the rule `declared` sees to it"
    return spread(*block_counts(source.kind))


def block_counts(kind: Entry) -> tuple[int, int, int]:
    """Layers of the model, and how many attentions and MLPs a source of blocks leaves out."""
    return kind.integer("layers", 0), kind.integer("attention", 0), kind.integer("mlp", 0)
