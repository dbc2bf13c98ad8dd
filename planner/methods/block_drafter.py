"""A drafter that fills a block of masks in one pass, from the target's hidden states.

DFlash (arXiv 2602.06036): the drafter attends to the text by way of hidden states of several of the
target's layers and, in both directions, within the block; one pass gives a row for every mask. The
most probable tokens are verified as a chain. The block keeps the length that the drafter was
trained with; fewer of its tokens may be verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan


@dataclass(frozen=True)
class BlockDrafterOptions(Options):
    """Which drafter, and how much of its block is verified.

    Attributes:
        draft: name of the drafter.
        length: drafted tokens that are verified.
        block: tokens that one pass drafts.
    """

    draft: str
    length: int
    block: int

    @property
    def words(self) -> str:
        """`7 of a block of 15 by flash`."""
        return f"{self.length} of a block of {self.block} by {self.draft}"


class BlockDrafter(Method[BlockDrafterOptions]):
    """One pass drafts all tokens, so that longer drafts cost little more than short ones."""

    name: ClassVar[str] = "block_drafter"
    engine_drafter: ClassVar[str] = "block"
    summary: ClassVar[str] = "one pass over the target's hidden states fills a block of tokens"
    paper: ClassVar[str] = "DFlash, arXiv 2602.06036; z-lab/dflash"
    acceptance: ClassVar[str] = "given"
    needs_draft_model: ClassVar[bool] = True
    runnable: ClassVar[bool] = False

    def choices(self, facts: ProblemFacts) -> Sequence[Family[BlockDrafterOptions] | Refusal]:
        """Per drafter: every length up to its block."""
        found = [
            _family(facts, name, drafter.block)
            for name, drafter in facts.drafters.items()
            if drafter.kind == "block"
        ]
        return found or [Refusal("any", "models.drafts names no block drafter")]

    def plan(self, facts: ProblemFacts, options: BlockDrafterOptions) -> Plan:
        """One pass looks as many tokens ahead as the block has, and a chain grows of its rows."""
        drafter, name = facts.drafters[options.draft], options.draft
        cache = cache_of(name)
        rule = None if facts.greedy else "recursive"
        body = f"""%t0 = root
%x = forward {name} %t0 cache={cache} pending={options.block + 1} features=@states shift=1 \
levels={options.block}
%c = repeat {options.length} (%t = %t0) {{
  %f = pick %t of=newest
  %n = grow %t at=%f logits=%x
  yield %n
}}
{judge("%c", options.length, rule=rule, forward="keep=@states")}
commit @states %e
commit {cache} %e"""
        states = (f"@states = track target layer={print_atom(drafter.feature_layers)}",)
        return single_round_plan(facts, self.name, (name,), body, states=states)

    def drafter(self, facts: ProblemFacts, options: BlockDrafterOptions) -> Drafter | None:
        """The drafter."""
        return Model(options.draft)


def _family(facts: ProblemFacts, name: str, block: int) -> Family[BlockDrafterOptions] | Refusal:
    family = f"block by {name}"
    if Model(name) not in facts.profiles:
        return Refusal(family, facts.missing_profile(Model(name)))
    lengths = tuple(range(1, block + 1))
    settings = tuple(BlockDrafterOptions(name, length, block) for length in lengths)
    return Family(family, {"length": Domain(lengths, "drafted tokens that are verified")}, settings)


METHOD = BlockDrafter()
