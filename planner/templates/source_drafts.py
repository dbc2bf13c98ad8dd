"""Methods that draft from a declared source, such as n-grams, past outputs or a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from specplan.cost_models.acceptance.draft_sources import DraftSource
from specplan.cost_models.acceptance.drafters import Source
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, OptionsT, Refusal
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.static_trees import undominated

STATE = "drafts"
"""What the source is called in plans."""
TREE_NODES = (4, 6, 8, 12, 16, 24, 32, 48, 64)
TREE_LENGTHS = (2, 3, 4, 6, 8)
FOLLOWING = "trees that follow the context"


class SourceMethod(Method[OptionsT]):
    """A method whose drafts come from one declared source.

    Attributes:
        source: how it is declared and measured.
    """

    source: ClassVar[DraftSource]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "source" in vars(cls):
            cls.sources, cls.source_drafter = (cls.source.word,), Source(cls.source.word)
            cls.shares = cls.source.shares


@dataclass(frozen=True)
class ChainOptions(Options):
    """How much is copied."""

    reads = "up to {length} tokens"

    length: Annotated[int, Option("tokens proposed at most")]


class SourceChains(SourceMethod[ChainOptions]):
    """One continuation of the text.

    Attributes:
        family: name of its one family.
        lengths: tokens that are proposed at most.
    """

    family: ClassVar[str]
    lengths: ClassVar[Sequence[int]]

    def choices(self, facts: ProblemFacts) -> Sequence[Family[ChainOptions] | Refusal]:
        """One continuation, by its length."""
        reason = self.missing_source(facts)
        if reason is not None:
            return [Refusal(self.family, reason)]
        return [Family.of(self.family, map(ChainOptions, self.lengths))]

    def plan(self, facts: ProblemFacts, options: ChainOptions) -> Plan:
        """Learn the text, look up a chain, verify, accept."""
        return source_plan(facts, self, f"length={options.length}", options.length)


@dataclass(frozen=True)
class MergedOptions(Options):
    """How much of the continuations is drafted."""

    reads = "merged tree of {nodes}, depth up to {length}"

    nodes: Annotated[int, Option("drafted tokens, the commonest continuations")]
    length: Annotated[int, Option("tokens of a continuation at most")]


class SourceTrees(SourceMethod[MergedOptions]):
    """Continuations of the text, merged into one tree.

    Attributes:
        family: name of its one family.
    """

    family: ClassVar[str]

    def choices(self, facts: ProblemFacts) -> Sequence[Family[MergedOptions] | Refusal]:
        """Trees by nodes and depth, those worth a price."""
        reason = self.missing_source(facts)
        if reason is not None:
            return [Refusal(self.family, reason)]
        pools = facts.evidence(Source(self.source.word), Pools, FOLLOWING)
        if isinstance(pools, str):
            return [Refusal(self.family, pools)]
        sizes = worthwhile_sizes(pools, ((n, TREE_NODES) for n in TREE_LENGTHS))
        return [Family.of(self.family, (MergedOptions(nodes, n) for n, nodes in sizes))]

    def plan(self, facts: ProblemFacts, options: MergedOptions) -> Plan:
        """Learn the text, look up a tree, verify, accept."""
        children = self.source.occurrences or options.nodes
        attributes = f"children={children} length={options.length} nodes={options.nodes}"
        return source_plan(facts, self, attributes, options.nodes)


def source_plan(
    facts: ProblemFacts,
    method: SourceMethod[Any],
    attributes: str,
    nodes: int,
    state: str = STATE,
) -> Plan:
    """Learn the text, look up, verify, accept; a request without a match decodes one token.

    Args:
        facts: the problem.
        method: whose plan it is.
        attributes: of the lookup, besides its suffixes.
        nodes: drafted tokens at most.
        state: what the source is called.
    """
    source = method.source
    path = facts.problem.datastore if source.scope == "read_only" else None
    learn = f"update @{state} %t0 last={source.last}\n" if source.last else ""
    lookup = f"lookup @{state} %t0 at=%t0 match={print_atom(source.match)} {attributes}"
    drafted, states = f"%t0 = root\n{learn}%c = {lookup}", (source.declaration(state, path),)
    return draft_and_verify(facts, method, drafted, nodes, states=states)


def worthwhile_sizes(
    pools: Pools, sizes: Iterable[tuple[int, Iterable[int]]]
) -> Iterator[tuple[int, int]]:
    """Depths and nodes that emit more than any others that are no larger.

    Args:
        pools: what is known of the trees.
        sizes: depths in rising order, each with numbers of nodes.
    """

    def tokens(depth: int, nodes: int) -> float:
        accepted = pools.cut(depth, nodes).model.accepted_at_least
        return sum(accepted(range(-1, depth - 1), (0,) * depth))

    return undominated(
        ((depth, n), (depth, n), tokens(depth, n))
        for depth, nodes in sizes
        if depth <= pools.layers
        for n in nodes
    )


def copies_by_match(matches: tuple[int, int, int], brief: int, copied: int) -> str:
    """Ops that copy the text behind the root `%t0` as `%c`: more after a longer match.

    Both look for the same longest match, which is found once; the second one is read where that is
    too short for the first.

    Args:
        matches: the shortest suffix looked for, the shortest that a long copy follows, and the
            longest, in tokens.
        brief: tokens of a short copy at most.
        copied: tokens of a long copy at most.
    """
    shortest, sure, longest = matches
    return f"""%long = lookup @text %t0 at=%t0 match=[{sure}, {longest}] length={copied}
%brief = lookup @text %t0 at=%t0 match=[{shortest}, {longest}] length={brief}
%k = measure %long count
%unsure = compute "k < 1" k=%k
%c = when %unsure otherwise=[%long] {{
    yield %brief
}}"""
