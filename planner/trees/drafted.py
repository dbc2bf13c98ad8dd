"""Trees that are grown while drafting: what a policy drafts in one context, and what it is worth.

A policy is called with a `Children` law, what it sees of one context, and says what it drafts
there. Its worth over contexts is the ratio of expected seconds to expected tokens, as rounds of all
kinds follow each other (renewal reward).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from specplan.planner.trees.round_times import RoundTimes
from specplan.planner.trees.shape import RankPath, StaticTree, tree_of_paths
from specplan.planner.trees.table import AcceptanceTable

Children = Callable[[RankPath], Sequence[float]]
"""Probabilities of a node's children by rank, not increasing; the root is the empty path.

To a policy they are the draft model's own, which stand for acceptance (OPT-Tree, arXiv 2406.17276,
and EAGLE-2, arXiv 2406.16858, find that they predict it); a policy is valued with them or others.
"""


@dataclass(frozen=True)
class Drafted:
    """What was drafted in one round.

    Attributes:
        tree: the nodes that are verified.
        widths: nodes that each draft forward ran over.
        pool: nodes that were drafted, verified or not.
    """

    tree: StaticTree
    widths: tuple[int, ...]
    pool: int

    def accepted(self, law: Children) -> float:
        """Expected accepted tokens, the bonus not counted: the sum of all path products."""
        reached: dict[RankPath, float] = {(): 1.0}
        for path in self.tree.paths:
            reached[path] = reached[path[:-1]] * law(path[:-1])[path[-1]]
        return sum(reached.values()) - 1.0

    def seconds(self, times: RoundTimes) -> float:
        """Seconds of the round, draft forwards whose nodes were all dropped included.

        Raises:
            UsageError: when no time is known to verify so many nodes.
        """
        wasted = times.draft_of(np.array(self.widths, dtype=np.intp)).sum()
        verified = times.verify_seconds(len(self.tree))
        return float(verified + wasted + (times.overhead if self.widths else 0.0))


Policy = Callable[[Children], Drafted]
"""What is drafted in a context."""


@dataclass(frozen=True)
class PolicyValue:
    """What a policy is worth over contexts.

    Attributes:
        tokens_per_round: mean emitted tokens, bonus included.
        seconds_per_round: mean seconds.
    """

    tokens_per_round: float
    seconds_per_round: float

    @property
    def seconds_per_token(self) -> float:
        """The ratio of the means."""
        return self.seconds_per_round / self.tokens_per_round


def policy_value(policy: Policy, laws: Iterable[Children], times: RoundTimes) -> PolicyValue:
    """The worth of a policy in equally likely contexts, the laws it sees being true."""
    drafted = [(policy(law), law) for law in laws]
    return PolicyValue(
        fmean(1.0 + round_.accepted(law) for round_, law in drafted),
        fmean(round_.seconds(times) for round_, _ in drafted),
    )


def children_of(table: AcceptanceTable) -> Children:
    """The law of a table, the same below all nodes of a depth."""
    rows = [row.tolist() for row in table.hazards]
    return lambda path: rows[min(len(path), len(rows) - 1)]


Scored = tuple[float, RankPath]
"""A node's path product and path."""


def best_of(nodes: Iterable[Scored], count: int) -> list[Scored]:
    """The most probable nodes; ties go to the shallower, then to the lexically smaller path."""
    return sorted(nodes, key=lambda node: (-node[0], len(node[1]), node[1]))[:count]


def offspring(layer: Iterable[Scored], law: Children, ranks: int | None = None) -> Iterator[Scored]:
    """All children, or the first `ranks` of each node; impossible ones are left out."""
    for reached, path in layer:
        for rank, probability in enumerate(law(path)[:ranks]):
            if probability > 0.0:
                yield reached * probability, (*path, rank)


def tree_of(nodes: Iterable[Scored]) -> StaticTree:
    """The tree with these nodes."""
    return tree_of_paths([path for _, path in nodes])
