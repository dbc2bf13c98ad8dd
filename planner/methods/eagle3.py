"""A head that reads the target's hidden states drafts, as a chain or as a static tree.

EAGLE-3 (Li et al. 2025, arXiv 2503.01840): the head joins hidden states of several of the target's
layers with the embedding of the next token, and gives the logits of the first level; deeper levels
read the head's own hidden states. After a round the head runs the accepted tokens again from the
target's hidden states, so that its cache keeps none of the drafted nodes. Children are the head's
best ranks, as vLLM, SGLang and TensorRT-LLM draft with it, or above temperature 0 its draws.

Clover and Clover-2 (Xiao et al. 2024, arXiv 2405.00263 and 2408.00264): layers along the text run
once per step, and deeper levels go on behind them, without attention to the text. Chimera (Zeng et
al. 2024, arXiv 2402.15758): a vector of the last three tokens attends to the target's states, and
at drafted tokens to those that the head itself gave. Tandem (Aishwarya P S et al. 2024, arXiv
2402.08644): so does a small model, in each layer to states of another of the target's.
"""

from __future__ import annotations

from collections.abc import Mapping

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import heads_by_token
from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.head_drafts import ChainsAndTrees, HeadTreeOptions
from specplan.planner.templates.plan_text import draft_and_verify, features_of, head_passes
from specplan.planner.templates.static_trees import drafted_tree

LONGEST = 10
"""Tokens of a chain, and levels of a tree."""


class Eagle3(ChainsAndTrees):
    """Speculative decoding with a head over the target's hidden states."""

    summary = "a head over the target's hidden states drafts a chain or static tree"
    paper = (
        "Li et al. 2025, arXiv 2503.01840; the first form: Li et al. 2024, arXiv 2401.15077; "
        "Clover and Clover-2: Xiao et al. 2024, arXiv 2405.00263 and 2408.00264; Chimera: Zeng et "
        "al. 2024, arXiv 2402.15758; Tandem: Aishwarya P S et al. 2024, arXiv "
        "2402.08644; deeper heads against an adversary: KOALA, Zhang et al. 2024, arXiv "
        "2408.08146; vocabulary by frequency: FR-Spec, Zhao et al. 2025, arXiv 2502.14856"
    )
    differs = "Trees have a fixed shape; `eagle2` grows them as the paper does, by the context."
    engine_drafter = "head"
    none = "models.drafts names no EAGLE-3 head"

    def heads(self, facts: ProblemFacts) -> Mapping[str, int]:
        """Heads that draft one token at a time, from hidden states."""
        return dict.fromkeys(heads_by_token(facts.drafters), LONGEST)

    def plan(self, facts: ProblemFacts, options: HeadTreeOptions) -> Plan:
        """The head grows the shape level by level, the target judges it."""
        tree, head = options.tree, options.draft
        passes = head_passes(facts, head, tree.depth + 1)
        drafted = drafted_tree(tree, passes, drawn=options.drawn)
        return draft_and_verify(
            facts, self, drafted, len(tree), models=(head,), rule=options.rule,
            features=features_of(facts.drafters[head]), recurrent=True,
        )  # fmt: skip


METHOD = Eagle3()
