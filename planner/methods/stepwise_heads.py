"""Heads on one hidden state of the target that read the tokens drafted so far, without attention.

Hydra (Ankner et al. 2024, arXiv 2402.05109): head k reads the state and the k tokens before it. MLP
speculators (Wertheimer et al. 2024, arXiv 2404.19124) and ReDrafter (Cheng et al. 2024, arXiv
2403.09919) carry a state of their own from token to token. A pass for each level; nothing is kept
between rounds. Children are best ranks at every temperature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Refusal
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import FEATURES, Pass, draft_and_verify, states_of
from specplan.planner.templates.static_trees import TreeOptions, layers_text, tree_text
from specplan.planner.trees import chain
from specplan.planner.trees.candidates import worthwhile_trees

MOST = 8
"""Tokens of a chain by a recurrent cell, which has no steps of its own to count."""


@dataclass(frozen=True)
class StepwiseHeadsOptions(TreeOptions):
    """Which heads draft, and what shape."""


class StepwiseHeads(Method[StepwiseHeadsOptions]):
    """Each head knows the tokens before its own; passes are small, and there is one per level."""

    summary = "heads without attention draft step by step, each knowing the tokens before its own"
    paper = (
        "Ankner et al. 2024, arXiv 2402.05109; Wertheimer et al. 2024, arXiv 2404.19124; "
        "Cheng et al. 2024, arXiv 2403.09919"
    )
    differs = "Drafts are best ranks judged by lossless rules; no beam is searched."
    acceptance = "rank of the accepted child at each depth, along the target's own texts"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[StepwiseHeadsOptions] | Refusal]:
        """Per set of heads: chains and trees as deep as it has steps."""
        heads = {name: one.block for name, one in facts.drafters.items() if one.kind == "steps"}
        if not heads:
            return [Refusal("any", "models.drafts names no heads that draft step by step")]
        return [family for one in heads.items() for family in _families(facts, *one)]

    def plan(self, facts: ProblemFacts, options: StepwiseHeadsOptions) -> Plan:
        """Level by level from the heads' own states, the first one from the target's."""
        heads, tree = options.draft, options.tree
        own = states_of(heads)
        passes = (
            Pass(heads, f"features={FEATURES} shift=1 keep={own}"),
            Pass(heads, f"features={own} shift=1 keep={own}"),
        )
        if tree.is_chain:
            drafted = layers_text(len(tree), passes)
        else:
            drafted = tree_text(tree, passes, drawn=False)
        return draft_and_verify(
            facts, self, drafted, len(tree), models=(heads,), features="last", recurrent=True,
            uncached=(heads,),
        )  # fmt: skip

    def drafter(self, facts: ProblemFacts, options: StepwiseHeadsOptions) -> Drafter | None:
        """The heads."""
        return Model(options.draft)


def _families(
    facts: ProblemFacts, heads: str, steps: int
) -> Iterator[Family[StepwiseHeadsOptions] | Refusal]:
    drafter, of = Model(heads), partial(StepwiseHeadsOptions.of, heads)
    most = steps if steps > 1 else MOST
    lengths = range(1, most + 1)
    yield family_by(facts, f"chain by {heads}", drafter, lambda _: map(of, map(chain, lengths)))
    yield family_by(
        facts,
        f"static tree by {heads}",
        drafter,
        lambda _: (of(tree) for tree in worthwhile_trees(facts, drafter) if tree.depth <= most),
        trees=True,
    )


METHOD = StepwiseHeads()
