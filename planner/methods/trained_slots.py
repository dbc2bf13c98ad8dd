"""Trained embeddings that the target itself reads at slots ahead of the text draft.

In BiTA (Lin et al. 2024, arXiv 2401.12522) and parallel prompt decoding (Chen et al. 2024, arXiv
2405.18628) one pass of the target verifies a draft and makes the next: below every drafted node
stand as many slots as the next draft has levels, and those of the last accepted node draft. PaSS
(Monea et al. 2023, arXiv 2311.13581) takes two passes, one with the slots and one that verifies:
its first token is the target's own and always accepted, and neither pass is as wide. In S3D (Zhong
et al. 2024, arXiv 2405.20314) that first pass leaves middle layers out, and so is cheap.

The drafter is a few embeddings, or with hidden transfer (Wu et al. 2024, arXiv 2404.12022) maps of
the node's state in the middle of the stack, as are the streams of Speculative Streaming (Bhendawade
et al. 2024, arXiv 2402.11131), which run with adapters (docs/heads.md). The other systems differ in
what was trained beside these, which no plan shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specplan.cost_models.acceptance.drafters import Drafter, Drawn, Model
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal, own_rounds
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.head_drafts import (
    ACCEPTANCE,
    ChainsAndTrees,
    HeadTreeOptions,
    ways,
)
from specplan.planner.templates.plan_text import FEATURES, draft_and_verify
from specplan.planner.templates.static_trees import grown_text
from specplan.planner.trees import chain


@dataclass(frozen=True)
class TwoPassOptions(HeadTreeOptions):
    """A chain that a pass of its own drafts, the target's own token first."""

    @property
    def words(self) -> str:
        """`chain of 4 by slots, in a pass of its own`."""
        return f"{super().words}, in a pass of its own"


class TrainedSlots(ChainsAndTrees):
    """The target reads a few trained embeddings ahead of its text, and drafts for itself."""

    summary = "trained embeddings at slots of the target draft a chain or static tree"
    paper = (
        "PaSS: Monea et al. 2023, arXiv 2311.13581; BiTA: Lin et al. 2024, arXiv 2401.12522; "
        "parallel prompt decoding: Chen et al. 2024, arXiv 2405.18628; SPACE: Yi et al. 2024, "
        "arXiv 2402.11809; SDSAT: Liu et al. 2024, arXiv 2403.18647; S3D: Zhong et al. 2024, "
        "arXiv 2405.20314; hidden transfer: Wu et al. 2024, arXiv 2404.12022; Speculative "
        "Streaming: Bhendawade et al. 2024, arXiv 2402.11131"
    )
    differs = (
        "Several prompt tokens for one place are not here, and SPACE, SDSAT and S3D also tune the "
        "target; hidden transfer enters before one layer, and is trained on tokens instead of "
        "on the target's own states; adapters of Speculative Streaming are those of its lossless "
        "mode, and `pruned_heads` prunes its tree; all nodes of a tree have the same number of "
        "slots, where parallel prompt decoding gives nodes that are seldom accepted fewer."
    )
    acceptance = f"{ACCEPTANCE}; of chains in a pass of their own, the rounds that ran"
    none = "models.drafts names no look-ahead tokens of the target"

    def heads(self, facts: ProblemFacts) -> Mapping[str, int]:
        """Sets of embeddings, and how many each has."""
        return {name: one.block for name, one in facts.drafters.items() if one.kind == "slots"}

    def choices(self, facts: ProblemFacts) -> Sequence[Family[HeadTreeOptions] | Refusal]:
        """Those of every set of embeddings, if the target can run columns that it does not keep."""
        lacking = "learned positions" if facts.target.learned_positions else ""
        lacking = "recurrent layers" if facts.target.state_elements else lacking
        if lacking and self.heads(facts):
            return [Refusal("any", f"look-ahead tokens of targets with {lacking} do not run")]
        return super().choices(facts)

    def families(
        self, facts: ProblemFacts, drafter: Model | Drawn, most: int
    ) -> Iterator[Family[HeadTreeOptions] | Refusal]:
        """Chains and trees that the verifying pass drafts; chains by a pass of their own."""
        yield from super().families(facts, drafter, most)
        if not _may_lead(facts, drafter):  # with layers skipped, all chains have such a pass
            return
        every = tuple(_two_passes(drafter, most))
        own = [one for one in every if own_rounds(facts, self, one) in facts.profiles]
        name = f"chain by {drafter}, in a pass of its own"
        if own:
            yield Family[HeadTreeOptions].of(name, own)
        elif self._is_named(facts):
            yield Refusal(name, facts.missing_profile(own_rounds(facts, self, every[0])))
        else:
            yield Refusal(name, _UNASKED)

    def drafter(self, facts: ProblemFacts, options: HeadTreeOptions) -> Drafter | None:
        """The embeddings; of chains in a pass of their own, the plan's own rounds."""
        if isinstance(options, TwoPassOptions):
            return own_rounds(facts, self, options)
        return super().drafter(facts, options)

    def run_settings(self, facts: ProblemFacts) -> Iterator[HeadTreeOptions]:
        """Chains in a pass of their own, where the problem names the method."""
        for name, most in self.heads(facts).items() if self._is_named(facts) else ():
            for drafter in ways(facts, name):
                if _may_lead(facts, drafter):
                    yield from _two_passes(drafter, most)

    def later_settings(self, facts: ProblemFacts) -> Iterator[HeadTreeOptions]:
        """Here the same."""
        return self.run_settings(facts)

    def _is_named(self, facts: ProblemFacts) -> bool:
        return self.name in (facts.problem.methods or ())

    def plan(self, facts: ProblemFacts, options: HeadTreeOptions) -> Plan:
        """Logits that slots left, or leave in a pass before, grow the shape; the target judges."""
        tree, skips = options.tree, facts.drafters[options.draft].skips
        first = bool(skips) or isinstance(options, TwoPassOptions)
        ahead = f"%x = forward {options.draft} %t0 features={FEATURES} "
        levels = tree.depth + (not first)
        if first:
            recorded = f"keep={FEATURES} levels={levels} gives=[]"
            how = f"skip={print_atom(skips.words)} write=scratch" if skips else ""
            own = f"forward target %t0 cache=@kv pending=1 {how} {recorded}"
            ahead = f"{own}\n{ahead}levels={levels} {'write=scratch' if skips else ''}"
        else:
            ahead = f"{ahead}shift=1 levels={tree.depth}"
        drafted = grown_text(
            tree,
            lambda level, _: ("" if level else ahead, "%x"),
            drawn=options.drawn,
            distinct=not tree.is_chain,
        )
        track = f"{FEATURES} = track target layer=last levels={levels}"
        return draft_and_verify(
            facts, self, drafted, len(tree), models=(options.draft,), rule=options.rule,
            verify="" if first else f"keep={FEATURES} levels={levels}",
            states=(track,),
            after=f"commit {FEATURES} %e",
            uncached=(options.draft,),
        )  # fmt: skip


def _may_lead(facts: ProblemFacts, drafter: Model | Drawn) -> bool:
    """Whether its first token is the target's own, always accepted: at 0, or where it is drawn."""
    whole = not facts.drafters[drafter.name].skips
    return whole and (facts.greedy or isinstance(drafter, Drawn))


def _two_passes(drafter: Model | Drawn, most: int) -> Iterator[TwoPassOptions]:
    """Chains of the target's own token and one or more by slots."""
    for length in range(2, most + 2):
        shape = chain(length)
        drawn = isinstance(drafter, Drawn)
        yield TwoPassOptions(drafter.name, shape.parents, shape.ranks, drawn)


_UNASKED = Reason(
    'its settings are measured by running them: name "trained_slots" in methods', Cause.OPT_IN
)
METHOD = TrainedSlots()
