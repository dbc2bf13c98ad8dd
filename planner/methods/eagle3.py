"""A head that reads the target's hidden states drafts, as a chain or as a static tree.

EAGLE-3 (Li et al. 2025, arXiv 2503.01840): the head joins hidden states of several of the target's
layers with the embedding of the next token, and gives the logits of the first level; deeper levels
read the head's own hidden states. After a round the head runs the accepted tokens again from the
target's hidden states, so that its cache keeps none of the drafted nodes. Children are the head's
best ranks at every temperature, as vLLM, SGLang and TensorRT-LLM draft with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import heads_by_token
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Refusal
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import draft_and_verify, features_of, head_passes
from specplan.planner.templates.static_trees import TreeOptions, layers_text, tree_text
from specplan.planner.trees import chain
from specplan.planner.trees.candidates import worthwhile_trees

CHAIN_LENGTHS = tuple(range(1, 11))


@dataclass(frozen=True)
class Eagle3Options(TreeOptions):
    """Which head drafts, and what shape."""


class Eagle3(Method[Eagle3Options]):
    """Speculative decoding with a head over the target's hidden states."""

    summary = "a head over the target's hidden states drafts a chain or static tree"
    paper = (
        "Li et al. 2025, arXiv 2503.01840; the first form: Li et al. 2024, arXiv 2401.15077; "
        "vocabulary by frequency: FR-Spec, Zhao et al. 2025, arXiv 2502.14856"
    )
    differs = "Trees have a fixed shape; `eagle2` grows them as the paper does, by the context."
    acceptance = "rank of the accepted child at each depth, along the target's own texts"
    engine_drafter = "head"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[Eagle3Options] | Refusal]:
        """Per head: chains of 1 to 10 tokens, and trees by nodes and depth."""
        heads = heads_by_token(facts.drafters)
        if not heads:
            return [Refusal("any", "models.drafts names no EAGLE-3 head")]
        return [family for head in heads for family in _families(facts, head)]

    def plan(self, facts: ProblemFacts, options: Eagle3Options) -> Plan:
        """The head grows the shape level by level, the target judges it."""
        tree, head = options.tree, options.draft
        passes = head_passes(head, tree.depth + 1)
        chains = tree.is_chain
        drafted = layers_text(len(tree), passes) if chains else tree_text(tree, passes, drawn=False)
        layers = features_of(facts.drafters[head])
        return draft_and_verify(
            facts, self, drafted, len(tree), models=(head,), features=layers, recurrent=True
        )

    def drafter(self, facts: ProblemFacts, options: Eagle3Options) -> Drafter | None:
        """The head."""
        return Model(options.draft)


def _families(facts: ProblemFacts, head: str) -> Iterator[Family[Eagle3Options] | Refusal]:
    drafter, of = Model(head), partial(Eagle3Options.of, head)
    yield family_by(
        facts, f"chain by {head}", drafter, lambda _: map(of, map(chain, CHAIN_LENGTHS))
    )
    yield family_by(
        facts,
        f"static tree by {head}",
        drafter,
        lambda _: map(of, worthwhile_trees(facts, drafter)),
        trees=True,
    )


METHOD = Eagle3()
