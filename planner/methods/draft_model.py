"""A smaller model drafts, as a chain or as a static tree, and the target verifies.

Chains follow Leviathan et al. 2022 (arXiv 2211.17192); trees follow Sequoia (arXiv 2402.12374):
the shape with the most expected tokens under the measured acceptance by depth and rank, children
drawn without replacement, accepted by the recursive rule. At temperature 0 children are the best
ranks and the rule is greedy.

Above temperature 0 chains may be judged as a whole (block verification, Sun et al. 2024, arXiv
2403.10444), which never accepts fewer tokens on average than judging them one by one. How many more
depends on ratios of the two models' probabilities along the whole chain, which no table of accepted
ranks holds. Their own rounds are run, where the problem names the method, for the length that suits
chains judged token by token and for a longer one, as each is a plan of its own.

A draft model that was trained with mask tokens (PARD, arXiv 2504.18583; `pard_token` in its
config.json) drafts a chain in one pass as well; these rounds, too, are run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.models.files.safetensors_headers import read_config
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal, own_rounds
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.chains import chain_plan
from specplan.planner.templates.per_drafter import PerDraftModel, family_by
from specplan.planner.templates.plan_text import cache_of, draft_and_verify, draft_passes
from specplan.planner.templates.static_trees import TreeOptions, tree_text
from specplan.planner.trees import TreeSearch, chain
from specplan.planner.trees.candidates import tree_objective, worthwhile_chains, worthwhile_trees

CHAIN_LENGTHS = tuple(range(1, 17))
PARALLEL_LENGTHS = (2, 4, 6, 8)


@dataclass(frozen=True)
class DraftModelOptions(TreeOptions):
    """Which model drafts, and what shape."""


@dataclass(frozen=True)
class BlockChainOptions(DraftModelOptions):
    """A chain that is judged as a whole.

    Attributes:
        rule: that judges it.
    """

    rule: str = "block"

    @property
    def words(self) -> str:
        """`chain of 6 by draft, judged as a block`."""
        return f"{super().words}, judged as a block"


@dataclass(frozen=True)
class ParallelChainOptions(DraftModelOptions):
    """A chain that one pass drafts, of the most probable tokens."""

    @property
    def words(self) -> str:
        """`chain of 6 by draft, in one pass`."""
        return f"{super().words}, in one pass"


class DraftModel(PerDraftModel[DraftModelOptions]):
    """Speculative decoding with a separate draft model that shares the target's tokenizer."""

    summary = "a smaller model drafts a chain or a static tree of tokens"
    paper = (
        "Leviathan et al. 2022, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318; trees: Chen "
        "et al. 2024, arXiv 2402.12374; blocks: Sun et al. 2024, arXiv 2403.10444; lengths by "
        "batch size: Su et al. 2023, arXiv 2310.18813; distilled (`specplan train`): Zhou et al. "
        "2023, arXiv 2310.08461; Goel et al. 2024, arXiv 2403.00858; by language: Yi et al. 2024, "
        "arXiv 2406.16758; while it serves: Liu et al. 2023, arXiv 2310.07177; in one pass: PARD, "
        "An et al. 2025, arXiv 2504.18583; for recurrent targets: Wang et al. 2024, "
        "arXiv 2408.15237; for a target that sees images: Gagrani et al. 2024, arXiv 2404.08856"
    )
    differs = (
        "Lengths by batch size follow from prices, where Su et al. fit a power law to accepted "
        "lengths; only `FreshDraft` in Python learns while it serves; a problem has requests of "
        "one language or task, its workload's, where Yi et al. pick the draft model of a request's."
    )
    acceptance = (
        "rank of the accepted child among its choices; of chains judged as a block, their own "
        "rounds, run on the prompts"
    )
    engine_drafter = "model"

    def families(
        self, facts: ProblemFacts, draft: str
    ) -> Iterator[Family[DraftModelOptions] | Refusal]:
        """Chains of up to 16 tokens, chains judged as a block, and trees by nodes and depth."""
        drafter, of = Model(draft), partial(DraftModelOptions.of, draft)
        lengths = partial(worthwhile_chains, facts, drafter, CHAIN_LENGTHS)
        yield family_by(
            facts, f"chain by {draft}", drafter, lambda _: (of(chain(n)) for n in lengths())
        )
        if not facts.greedy:  # where all rules are one
            yield _own(facts, draft, BlockChainOptions, CHAIN_LENGTHS[1:], "judged as a block")
        if _looks_ahead(facts, draft):
            yield _own(facts, draft, ParallelChainOptions, PARALLEL_LENGTHS, "in one pass")
        yield family_by(
            facts,
            f"static tree by {draft}",
            drafter,
            lambda _: map(of, worthwhile_trees(facts, drafter)),
            _BestTree(facts, draft),
            trees=True,
        )

    def plan(self, facts: ProblemFacts, options: DraftModelOptions) -> Plan:
        """The draft model grows the shape, the target judges it."""
        draft, tree = options.draft, options.tree
        if isinstance(options, ParallelChainOptions):
            return draft_and_verify(
                facts, self, _in_one_pass(draft, len(tree)), len(tree), models=(draft,)
            )
        if tree.is_chain:
            rule = options.rule if isinstance(options, BlockChainOptions) else "token"
            return chain_plan(facts, self, Model(draft), len(tree), rule=rule)
        drafted = tree_text(tree, draft_passes(draft), drawn=not facts.greedy)
        return draft_and_verify(facts, self, drafted, len(tree), models=(draft,))

    def drafter(self, facts: ProblemFacts, options: DraftModelOptions) -> Drafter | None:
        """The draft model; of blocks and of chains in one pass, the plan's own rounds."""
        if isinstance(options, BlockChainOptions | ParallelChainOptions):
            return own_rounds(facts, self, options)
        return Model(options.draft)

    def later_settings(self, facts: ProblemFacts) -> Iterator[DraftModelOptions]:
        """Chains judged as a block or drafted in one pass, where the problem names the method."""
        for draft in facts.drafts if self.name in (facts.problem.methods or ()) else ():
            if not facts.greedy:
                for length in _block_lengths(facts, draft):
                    yield BlockChainOptions.of(draft, chain(length))
            if _looks_ahead(facts, draft):
                for length in PARALLEL_LENGTHS:
                    yield ParallelChainOptions.of(draft, chain(length))


def _own(
    facts: ProblemFacts,
    draft: str,
    kind: type[DraftModelOptions],
    lengths: Iterable[int],
    words: str,
) -> Family[DraftModelOptions] | Refusal:
    """The chains of a kind whose rounds have been run."""
    name = f"chain by {draft}, {words}"
    every = (kind.of(draft, chain(length)) for length in lengths)
    own = [one for one in every if own_rounds(facts, METHOD, one) in facts.profiles]
    return Family[DraftModelOptions].of(name, own) if own else Refusal(name, _NOT_RUN)


def _looks_ahead(facts: ProblemFacts, draft: str) -> bool:
    """Whether a draft model was trained with mask tokens."""
    folder = facts.problem.models.by_role[draft].path
    return folder.is_dir() and "pard_token" in read_config(folder)


def _in_one_pass(draft: str, length: int) -> str:
    """One pass looks as many tokens ahead, and a chain grows of its logits."""
    return f"""%t0 = root
%x = forward {draft} %t0 cache={cache_of(draft)} pending={length + 1} levels={length}
%c = repeat {length} (%t = %t0) {{
  %f = pick %t of=newest
  %n = grow %t at=%f logits=%x
  yield %n
}}"""


_NOT_RUN = Reason(
    "their own rounds price them, and were not run: name draft_model in methods, with prompts and "
    "device: measured, or give ready profiles of them",
    Cause.OPT_IN,
)


def _block_lengths(facts: ProblemFacts, draft: str) -> tuple[int, ...]:
    """The middle one and the longest of those near the best of chains judged token by token.

    The shortest and the longest of all where acceptance is not known yet.
    """
    if Model(draft) not in facts.profiles:
        return 2, CHAIN_LENGTHS[-1]  # a device is measured from the shortest to the longest
    near = worthwhile_chains(facts, Model(draft), CHAIN_LENGTHS)
    return tuple(dict.fromkeys(max(2, n) for n in (near[len(near) // 2], near[-1])))


@dataclass(frozen=True, eq=False)
class _BestTree:
    """The tree with the most tokens of any size and depth."""

    facts: ProblemFacts
    draft: str

    def __call__(self, point: Mapping[str, Any]) -> DraftModelOptions | None:
        """The tree of a point; None where the best one is smaller, or a chain."""
        nodes, depth = int(point["nodes"]), int(point["depth"])
        tree = self._search.tree(nodes, depth)
        if (len(tree), tree.depth) != (nodes, depth) or tree.is_chain:
            return None
        return DraftModelOptions.of(self.draft, tree)

    @cached_property
    def _search(self) -> TreeSearch:
        return tree_objective(self.facts, Model(self.draft)).exact


METHOD = DraftModel()
