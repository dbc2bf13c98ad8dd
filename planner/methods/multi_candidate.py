"""Trees in which every node gets several children, drawn independently of one another.

Multi-candidate speculative decoding (Yang et al. 2024, arXiv 2401.06706), its sampling with
replacement: at every level each node gets so many draws of the draft model's law, and recursive
rejection judges one after the other. Equal draws go on together: what was drafted below any of them
hangs below the first. Draws without replacement, the paper's other way, are `recursive_sampling`;
at temperature 0 children are the best ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.methods.recursive_sampling import nodes_of
from specplan.planner.plan_text import cache_of, judge, single_round_plan
from specplan.planner.proposer import Proposer
from specplan.planner.rehearsed import Rehearsed

SHAPES = ((3,), (2, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (4, 2, 1), (4, 2, 2, 1))
"""Draws below every node of the root's level, of the next one, and so on."""


@dataclass(frozen=True)
class MultiCandidateOptions(Options):
    """Which model drafts, and how wide.

    Attributes:
        draft: name of the draft model.
        branching: draws below every node of the root's level, of the next one, and so on.
    """

    draft: str
    branching: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """Drafted nodes."""
        return nodes_of(self.branching)

    @property
    def words(self) -> str:
        """`3-1-1 independent draws by draft`."""
        return f"{'-'.join(map(str, self.branching))} independent draws by {self.draft}"


class MultiCandidate(Rehearsed[MultiCandidateOptions]):
    """Several chances at every level, none of which depends on the others."""

    name: ClassVar[str] = "multi_candidate"
    shape: ClassVar[str] = "static tree"
    summary: ClassVar[str] = "a draft model grows a tree of independent draws; equal ones merge"
    paper: ClassVar[str] = "Yang et al. 2024, arXiv 2401.06706"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "independent draws"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "branching": "draws below every node, level by level",
    }

    def settings(self, roles: Sequence[str]) -> Iterator[MultiCandidateOptions]:
        """A few shapes for every draft model."""
        drafts = [role for role in roles if role != "target"]
        return (MultiCandidateOptions(draft, shape) for draft, shape in product(drafts, SHAPES))

    def plan(self, facts: ProblemFacts, options: MultiCandidateOptions) -> Plan:
        """Draw level by level, merge, verify, accept."""
        cache = cache_of(options.draft)
        lines = ["%t0 = root", *_levels(options, drawn=not facts.greedy)]
        tree = f"%t{len(options.branching)}"
        if not facts.greedy and len(options.branching) > 1:
            lines.append(f"%c = graft {tree} same=merge")
            tree = "%c"
        lines.append(judge(tree, options.nodes, rule=None if facts.greedy else "recursive"))
        lines.append(f"commit {cache} %e")
        return single_round_plan(facts, self.name, (options.draft,), "\n".join(lines))

    def proposer(self, options: MultiCandidateOptions) -> str:
        """The draft model with so many draws."""
        way = "_".join(["draws", *map(str, options.branching)])
        return Proposer(options.draft, way=way).name


def _levels(options: MultiCandidateOptions, *, drawn: bool) -> Iterator[str]:
    cache, used, width = cache_of(options.draft), 0, 1
    for level, children in enumerate(options.branching):
        above, nodes, pending = f"%t{level}", f"%t{level}", " pending=2"
        if level:
            nodes, pending = f"%f{level}", ""
            yield f"{nodes} = pick {above} of=newest"
        yield f"%q{level} = forward {options.draft} {nodes} cache={cache}{pending}"
        width *= children
        how = ""
        if drawn:
            yield f"%u{level} = uniform {width} stream=draft offset={used}"
            how = f" how=draw by=%u{level}"
        used += width
        yield f"%t{level + 1} = grow {above} at={nodes} rows=%q{level} children={children}{how}"


METHOD = MultiCandidate()
