"""A drafter that fills a block of masks in one pass, from the target's hidden states.

DFlash (arXiv 2602.06036): the drafter attends to the text through hidden states of several of the
target's layers and, in both directions, within the block; one pass gives logits for every mask. The
most probable tokens are verified as a chain. The block keeps the length that the drafter was
trained with; fewer of its tokens may be verified. The last token of the text enters by its
embedding, as the target has not read it yet; the next round reads it again with its states. P-EAGLE
runs an EAGLE-3 head so, on masks that see the text and the masks before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Method, Option, Options, Refusal
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import FEATURES, cache_of, draft_and_verify


@dataclass(frozen=True)
class BlockDrafterOptions(Options):
    """Which drafter, and how much of its block is verified."""

    reads = "{length} of a block of {block} by {draft}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens that are verified")]
    block: Annotated[int, Option("tokens that one pass drafts")]


class BlockDrafter(Method[BlockDrafterOptions]):
    """One pass drafts all tokens, so that longer drafts cost little more than short ones."""

    summary = "one pass over the target's hidden states fills a block of tokens"
    paper = (
        "DFlash, arXiv 2602.06036; P-EAGLE, amazon/gpt-oss-120b-p-eagle; ParallelSpec: Xiao et al. "
        "2024, arXiv 2410.05589"
    )
    differs = (
        "ParallelSpec's drafter is run as P-EAGLE: one mask token, and a trained state beside it."
    )
    acceptance = "rank of the accepted child at each depth, along the target's own texts"
    engine_drafter = "block"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[BlockDrafterOptions] | Refusal]:
        """Per drafter: every length up to its block."""
        blocks = {name: one.block for name, one in facts.drafters.items() if one.kind == "block"}
        return [_family(facts, *one) for one in blocks.items()] or [
            Refusal("any", "models.drafts names no block drafter")
        ]

    def plan(self, facts: ProblemFacts, options: BlockDrafterOptions) -> Plan:
        """One pass looks as many tokens ahead as the block has, and a chain grows of its logits."""
        draft, block, cache = options.draft, options.block, cache_of(options.draft)
        layers = print_atom(facts.drafters[draft].feature_layers)
        above = facts.drafters[draft].reads_above
        read = f"features={FEATURES} levels={block} " + ("shift=1" if above else "attend=block")
        pending = options.length + (1 if above else 2)  # the last token is read twice
        drafted = f"""%t0 = root
%x = forward {draft} %t0 cache={cache} pending={pending} {read}
%c = repeat {options.length} (%t = %t0) {{
  %f = pick %t of=newest
  %n = grow %t at=%f logits=%x
  yield %n
}}"""
        models, length = (draft,), options.length
        return draft_and_verify(facts, self, drafted, length, models=models, features=layers)

    def drafter(self, facts: ProblemFacts, options: BlockDrafterOptions) -> Drafter | None:
        """The drafter."""
        return Model(options.draft)


def _family(facts: ProblemFacts, name: str, block: int) -> Family[BlockDrafterOptions] | Refusal:
    settings = (BlockDrafterOptions(name, length, block) for length in range(1, block + 1))
    return family_by(facts, f"block by {name}", Model(name), lambda _: settings)


METHOD = BlockDrafter()
