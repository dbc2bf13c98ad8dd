"""Heads on one hidden state of the target, one for each token ahead, draft a chain or static tree.

Medusa (Cai et al. 2024, arXiv 2401.10774): each head tells one token further ahead, from the same
state and without knowing the tokens between. All give their logits in one pass. Blockwise parallel
decoding (Stern et al. 2018, arXiv 1811.03115) was the first form, with the target's own matrix
behind each. Residual blocks keep nothing between rounds; layers beside the target's last one
(Gloeckle et al. 2024, arXiv 2404.19737) attend to the text, and keep a cache. Children are the
heads' best ranks at every temperature.
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
from specplan.planner.templates.plan_text import (
    FEATURES,
    cache_of,
    draft_and_verify,
    features_of,
    number_list,
)
from specplan.planner.templates.static_trees import TreeOptions, levels_text
from specplan.planner.trees import GrowLevel, chain
from specplan.planner.trees.candidates import worthwhile_trees


@dataclass(frozen=True)
class ParallelHeadsOptions(TreeOptions):
    """Which heads draft, and what shape."""


class ParallelHeads(Method[ParallelHeadsOptions]):
    """One pass drafts all levels, so that deeper trees cost the target's pass alone."""

    summary = "heads for several tokens ahead draft a chain or static tree in one pass"
    paper = (
        "Cai et al. 2024, arXiv 2401.10774; Cerberus: Liu et al. 2024, arXiv 2410.13344; "
        "multi-token prediction: Gloeckle et al. 2024, arXiv 2404.19737; blockwise parallel "
        "decoding: Stern et al. 2018, arXiv 1811.03115"
    )
    differs = (
        "Drafts are judged by lossless rules, where Medusa's accept typical tokens; the heads "
        "draft in every step, where Cerberus' gate leaves some to plain decoding."
    )
    acceptance = "rank of the accepted child at each depth, along the target's own texts"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[ParallelHeadsOptions] | Refusal]:
        """Per set of heads: chains and trees as deep as there are heads."""
        heads = {name: one.block for name, one in facts.drafters.items() if one.kind == "parallel"}
        if not heads:
            return [Refusal("any", "models.drafts names no heads for several tokens ahead")]
        return [family for one in heads.items() for family in _families(facts, *one)]

    def plan(self, facts: ProblemFacts, options: ParallelHeadsOptions) -> Plan:
        """The heads' logits grow the shape level by level, the target judges it."""
        heads, tree = options.draft, options.tree
        drafter = facts.drafters[heads]
        attends, read = drafter.shape.num_layers > 0, f"features={FEATURES} shift=1"
        if attends:
            read = f"cache={cache_of(heads)} pending={tree.depth + 1} {read}"

        def grow(index: int, grown: str, above: str, at: str, level: GrowLevel) -> Iterator[str]:
            if index == 0:
                yield f"%x = forward {heads} %t0 {read} levels={drafter.block}"
            yield f"{grown} = grow {above} at={at} logits=%x children={number_list(level.children)}"

        return draft_and_verify(
            facts, self, levels_text(tree, grow), len(tree), models=(heads,),
            features=features_of(drafter),
            uncached=() if attends else (heads,),
        )  # fmt: skip

    def drafter(self, facts: ProblemFacts, options: ParallelHeadsOptions) -> Drafter | None:
        """The heads."""
        return Model(options.draft)


def _families(
    facts: ProblemFacts, heads: str, count: int
) -> Iterator[Family[ParallelHeadsOptions] | Refusal]:
    drafter, of = Model(heads), partial(ParallelHeadsOptions.of, heads)
    lengths = range(1, count + 1)
    yield family_by(facts, f"chain by {heads}", drafter, lambda _: map(of, map(chain, lengths)))
    yield family_by(
        facts,
        f"static tree by {heads}",
        drafter,
        lambda _: (of(tree) for tree in worthwhile_trees(facts, drafter) if tree.depth <= count),
        trees=True,
    )


METHOD = ParallelHeads()
