"""A head that reads the target's hidden states drafts, as a chain or as a static tree.

EAGLE-3 (Li et al. 2025, arXiv 2503.01840): the head joins hidden states of several of the target's
layers with the embedding of the next token, and gives the rows of the first level; deeper levels
read the head's own hidden states. After a round the head computes anew what was accepted, from the
target's hidden states, so that its cache keeps none of the drafted nodes. Children are the head's
best ranks at every temperature, as vLLM, SGLang and TensorRT-LLM draft with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Refusal
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.static_trees import TREE_DOMAINS, TreeOptions, chain_text, tree_text
from specplan.planner.trees import StaticTree, chain
from specplan.planner.trees.candidates import worthwhile_trees

CHAIN_LENGTHS = tuple(range(1, 11))


@dataclass(frozen=True)
class Eagle3Options(TreeOptions):
    """Which head drafts, and what shape."""


class Eagle3(Method[Eagle3Options]):
    """Speculative decoding with a head over the target's hidden states."""

    name: ClassVar[str] = "eagle3"
    engine_drafter: ClassVar[str] = "head"
    summary: ClassVar[str] = "a head over the target's hidden states drafts a chain or static tree"
    paper: ClassVar[str] = "Li et al. 2025, arXiv 2503.01840"
    acceptance: ClassVar[str] = "given"
    needs_draft_model: ClassVar[bool] = True
    runnable: ClassVar[bool] = False

    def choices(self, facts: ProblemFacts) -> Sequence[Family[Eagle3Options] | Refusal]:
        """Per head: chains of 1 to 10 tokens, and trees by nodes and depth."""
        heads = [name for name, drafter in facts.drafters.items() if drafter.kind == "recurrent"]
        if not heads:
            return [Refusal("any", "models.drafts names no EAGLE-3 head")]
        return [family for head in heads for family in _families(facts, head)]

    def plan(self, facts: ProblemFacts, options: Eagle3Options) -> Plan:
        """The head grows the shape level by level, the target judges it."""
        tree, head = options.tree, options.draft
        cache, own = cache_of(head), f"@{head}_states"

        def forward(level: int, nodes: str) -> str:
            if not level:
                read = f"pending={tree.depth + 1} features=@states shift=1 keep={own}"
            else:
                read = f"features={own} shift=1 keep={own} write=scratch"
            return f"forward {head} {nodes} cache={cache} {read}"

        rule = None if facts.greedy else "recursive"
        drafted = tree_text(tree, forward, drawn=False)
        if tree.is_chain:
            drafted = chain_text(len(tree), forward)
        body = (
            f"{drafted}\n{judge('%c', len(tree), rule=rule, forward='keep=@states')}\n"
            f"commit @states %e\ncommit {cache} %e\ncommit {own} %e"
        )
        layers = print_atom(facts.drafters[head].feature_layers)
        states = (
            f"@states = track target layer={layers}",
            f"{own} = track {head} layer=last",
        )
        return single_round_plan(facts, self.name, (head,), body, states=states)

    def drafter(self, facts: ProblemFacts, options: Eagle3Options) -> Drafter | None:
        """The head."""
        return Model(options.draft)


def _families(facts: ProblemFacts, head: str) -> Sequence[Family[Eagle3Options] | Refusal]:
    chains, trees = f"chain by {head}", f"static tree by {head}"
    if Model(head) not in facts.profiles:
        reason = facts.missing_profile(Model(head))
        return [Refusal(chains, reason), Refusal(trees, reason)]
    found: list[Family[Eagle3Options] | Refusal] = [
        Family(
            chains,
            {"length": Domain(CHAIN_LENGTHS, "drafted tokens")},
            tuple(_options(head, chain(length)) for length in CHAIN_LENGTHS),
        )
    ]
    settings = tuple(_options(head, tree) for tree in worthwhile_trees(facts, Model(head)))
    if not settings:
        return [*found, Refusal(trees, facts.no_tree(Model(head)))]
    return [*found, Family(trees, TREE_DOMAINS, settings)]


def _options(head: str, tree: StaticTree) -> Eagle3Options:
    return Eagle3Options(head, tree.parents, tree.ranks)


METHOD = Eagle3()
