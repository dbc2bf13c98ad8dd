"""Several drafters vote, and the paths that most of them agree on are verified.

Minions (Wang et al. 2024, arXiv 2402.15678): small models draft a chain each, the chains are merged
into a tree, the weight of a node is the sum of the weights of the models that drafted its path, and
the heaviest path is the draft. A model's weight follows its success: the tokens of its chain that
the text went on with, older rounds counting nine tenths of the next each. A vote for a path is that
weight times how likely the drafter finds the path; the text itself (prompt lookup) votes too, for
what followed its end before, and is sure of it. How far the models draft follows what was accepted
of late. The heaviest nodes up to a number are verified: the path that most agree on, and others
where they do not. Votes are for best tokens at every temperature, certain proposals, so that the
target's distribution is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.several_drafters import joined_chains, models_of

OLD, NEW = 0.9, 0.1
"""What weights and the length keep, and take of a round."""


@dataclass(frozen=True)
class MinionsOptions(Options):
    """Who votes, and how much is verified."""

    reads = "up to {length} tokens by {drafters}, the best {nodes}"

    drafters: Annotated[tuple[str, ...], Option("who votes", drafts=True)]
    length: Annotated[int, Option("tokens that each drafts at most")]
    nodes: Annotated[int, Option("verified tokens, the heaviest ones")]


class Minions(ProfiledByRunning[MinionsOptions]):
    """Few verified tokens for many drafters."""

    summary = "all drafters draft, and what most of them agree on is verified"
    paper = "Wang et al. 2024, arXiv 2402.15678"
    differs = (
        "Votes weigh by probability beside past success, drafting does not overlap with "
        "verification, and more than the heaviest path is verified."
    )
    memory = "a number of each drafter and one of the length, by request"
    shape = "dynamic tree"
    sources = ("prompt_lookup",)
    family = "votes of all drafters"
    shapes = ((2, 3), (3, 4), (4, 6), (6, 9))

    def settings(self, models: Sequence[str]) -> Iterator[MinionsOptions]:
        """All draft models and the text, a few sizes."""
        if models:
            yield from (MinionsOptions((*models, TEXT.name), *shape) for shape in self.shapes)

    def plan(self, facts: ProblemFacts, options: MinionsOptions) -> Plan:
        """Draft in turn, merge by weight, prune to the heaviest, verify, accept, weigh anew."""
        drafters, length = options.drafters, options.length
        states = [f"@weight{i} = value number(init=1.0)" for i in range(len(drafters))]
        weights = ", ".join(f"%w{i}" for i in range(len(drafters)))
        chains = joined_chains(
            drafters, length, drawn=False, result="%pool", until="%k", join=f"weights=[{weights}]"
        )
        before = "\n".join(f"%w{i} = load @weight{i}" for i in range(len(drafters)))
        drafted = f"""{before}
%k = load @length
{chains}
%best = pick %pool of=all best={options.nodes}
%c = prune %pool to=%best"""
        after = "\n".join(_success(i) for i in range(len(drafters)))
        return draft_and_verify(
            facts, self, drafted, options.nodes, models=models_of(drafters),
            after=f"""{after}
%hit = measure %a accepted
%k2 = compute "min(max({OLD}*k + {NEW}*(hit + 2), 1), {length})" k=%k hit=%hit
store @length %k2""",
            states=(*states, f"@length = value number(init={float(length)})"),
        )  # fmt: skip


def _success(i: int) -> str:
    """Ops at the end of a round: the weight of a drafter by what the text went on with of it."""
    return f"""%s{i} = measure %d{i} said
%v{i} = compute "max({OLD}*w + {NEW}*s, 0.01)" w=%w{i} s=%s{i}
store @weight{i} %v{i}"""


METHOD = Minions()
