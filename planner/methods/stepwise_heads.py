"""Heads on one hidden state of the target that read the tokens drafted so far, without attention.

Hydra (Ankner et al. 2024, arXiv 2402.05109): head k reads the state and the k tokens before it. MLP
speculators (Wertheimer et al. 2024, arXiv 2404.19124) and ReDrafter (Cheng et al. 2024, arXiv
2403.09919) carry a state of their own from token to token. A pass for each level; nothing is kept
between rounds. Children are best ranks, or above temperature 0 draws.
"""

from __future__ import annotations

from collections.abc import Mapping

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.head_drafts import ChainsAndTrees, HeadTreeOptions
from specplan.planner.templates.plan_text import FEATURES, Pass, draft_and_verify, states_of
from specplan.planner.templates.static_trees import drafted_tree

MOST = 8
"""Tokens of a chain by a recurrent cell, which has no steps of its own to count."""


class StepwiseHeads(ChainsAndTrees):
    """Each head knows the tokens before its own; passes are small, and there is one per level."""

    summary = "heads without attention draft step by step, each knowing the tokens before its own"
    paper = (
        "Ankner et al. 2024, arXiv 2402.05109; Wertheimer et al. 2024, arXiv 2404.19124; "
        "Cheng et al. 2024, arXiv 2403.09919"
    )
    differs = "Drafts are best ranks or draws judged by lossless rules; no beam is searched."
    none = "models.drafts names no heads that draft step by step"

    def heads(self, facts: ProblemFacts) -> Mapping[str, int]:
        """Per set of heads, as many levels as it has steps."""
        steps = {name: one.block for name, one in facts.drafters.items() if one.kind == "steps"}
        return {name: count if count > 1 else MOST for name, count in steps.items()}

    def plan(self, facts: ProblemFacts, options: HeadTreeOptions) -> Plan:
        """Level by level from the heads' own states, the first one from the target's."""
        heads, tree = options.draft, options.tree
        own = states_of(heads)
        passes = (
            Pass(heads, f"features={FEATURES} shift=1 keep={own}"),
            Pass(heads, f"features={own} shift=1 keep={own}"),
        )
        drafted = drafted_tree(tree, passes, drawn=options.drawn)
        return draft_and_verify(
            facts, self, drafted, len(tree), models=(heads,), rule=options.rule, features="last",
            recurrent=True, uncached=(heads,),
        )  # fmt: skip


METHOD = StepwiseHeads()
