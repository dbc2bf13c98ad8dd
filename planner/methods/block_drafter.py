"""A drafter that fills a block of masks in one pass, from the target's hidden states.

DFlash (arXiv 2602.06036): the drafter attends to the text through hidden states of several of the
target's layers and, in both directions, within the block; one pass gives logits for every mask. The
most probable tokens, or above temperature 0 draws, are verified as a chain. The block keeps the
length that the drafter was trained with; fewer of its tokens may be verified. The last token of the
text enters by its embedding, as the target has not read it yet; the next round reads it again with
its states. P-EAGLE runs an EAGLE-3 head so, on masks that see the text and the masks before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drawn, Model
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Option, Refusal
from specplan.planner.templates.chains import grown_token
from specplan.planner.templates.head_drafts import ByHeads, HeadChainOptions
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import FEATURES, cache_of, draft_and_verify


@dataclass(frozen=True)
class BlockDrafterOptions(HeadChainOptions):
    """Which drafter, how much of its block is verified, and how it chooses tokens."""

    reads = "{length} of a block of {block} by {draft}{how}"

    block: Annotated[int, Option("tokens that one pass drafts")] = 0


class BlockDrafter(ByHeads[BlockDrafterOptions]):
    """One pass drafts all tokens, so that longer drafts cost little more than short ones."""

    summary = "one pass over the target's hidden states fills a block of tokens"
    paper = (
        "DFlash, arXiv 2602.06036; P-EAGLE, amazon/gpt-oss-120b-p-eagle; ParallelSpec: Xiao et al. "
        "2024, arXiv 2410.05589"
    )
    differs = (
        "ParallelSpec's drafter is run as P-EAGLE: one mask token, and a trained state beside it."
    )
    engine_drafter = "block"

    none = "models.drafts names no block drafter"

    def heads(self, facts: ProblemFacts) -> Mapping[str, int]:
        """Block drafters, and the tokens of their blocks."""
        return {name: one.block for name, one in facts.drafters.items() if one.kind == "block"}

    def families(
        self, facts: ProblemFacts, drafter: Model | Drawn, most: int
    ) -> Iterator[Family[BlockDrafterOptions] | Refusal]:
        """Every length up to the block."""
        draft, drawn, lengths = drafter.name, isinstance(drafter, Drawn), range(1, most + 1)
        settings = [BlockDrafterOptions(draft, length, drawn, most) for length in lengths]
        yield family_by(facts, f"block by {draft}{settings[0].how}", drafter, lambda _: settings)

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
  {grown_token("%x", drawn=options.drawn)}
  yield %n
}}"""
        return draft_and_verify(
            facts, self, drafted, options.length, models=(draft,), rule=options.rule,
            features=layers,
        )  # fmt: skip


METHOD = BlockDrafter()
