"""Heads on one hidden state of the target, one for each token ahead, draft a chain or static tree.

Medusa (Cai et al. 2024, arXiv 2401.10774): each head tells one token further ahead, from the same
state and without knowing the tokens between. All give their logits in one pass. Blockwise parallel
decoding (Stern et al. 2018, arXiv 1811.03115) was the first form, with the target's own matrix
behind each. Residual blocks keep nothing between rounds; layers beside the target's last one
(Gloeckle et al. 2024, arXiv 2404.19737) attend to the text, and keep a cache, as do Amphista's two
layers (Li et al. 2024, arXiv 2406.13170), whose heads attend to each other. Children are the
heads' best ranks, or above temperature 0 draws of each head.
"""

from __future__ import annotations

from collections.abc import Mapping

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import NO_HEADS_AHEAD, heads_ahead
from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.head_drafts import ChainsAndTrees, HeadTreeOptions
from specplan.planner.templates.plan_text import (
    ahead_pass,
    draft_and_verify,
    features_of,
    uncached_of,
)
from specplan.planner.templates.static_trees import grown_text


class ParallelHeads(ChainsAndTrees):
    """One pass drafts all levels, so that deeper trees cost the target's pass alone."""

    summary = "heads for several tokens ahead draft a chain or static tree in one pass"
    paper = (
        "Cai et al. 2024, arXiv 2401.10774; Cerberus: Liu et al. 2024, arXiv 2410.13344; "
        "multi-token prediction: Gloeckle et al. 2024, arXiv 2404.19737; blockwise parallel "
        "decoding: Stern et al. 2018, arXiv 1811.03115; Amphista: Li et al. 2024, arXiv 2406.13170"
    )
    differs = (
        "Drafts are judged by lossless rules, where Medusa's accept typical tokens; the heads "
        "draft in every step, where Cerberus' gate leaves some to plain decoding."
    )
    none = NO_HEADS_AHEAD

    def heads(self, facts: ProblemFacts) -> Mapping[str, int]:
        """Per set of heads, as many levels as there are heads."""
        return heads_ahead(facts.drafters)

    def plan(self, facts: ProblemFacts, options: HeadTreeOptions) -> Plan:
        """The heads' logits grow the shape level by level, the target judges it."""
        heads, tree = options.draft, options.tree
        ahead = f"%x = {ahead_pass(facts, heads, tree.depth).over('%t0')}"
        drafted = grown_text(
            tree,
            lambda level, _: ("" if level else ahead, "%x"),
            drawn=options.drawn,
            distinct=not tree.is_chain,
        )
        return draft_and_verify(
            facts, self, drafted, len(tree), models=(heads,), rule=options.rule,
            features=features_of(facts.drafters[heads]), uncached=uncached_of(facts, (heads,)),
        )  # fmt: skip


METHOD = ParallelHeads()
