"""Plans that draft from a declared source: what their methods share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.draft_sources import DraftSource
from specplan.cost_models.acceptance.drafters import Source
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import judge, single_round_plan

STATE = "drafts"
"""What the source is called in plans."""
TREE_NODES = (4, 6, 8, 12, 16, 24, 32, 48, 64)
TREE_LENGTHS = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class ChainOptions(Options):
    """How much is copied.

    Attributes:
        length: tokens proposed at most.
    """

    length: int

    @property
    def words(self) -> str:
        """`up to 8 tokens`."""
        return f"up to {self.length} tokens"


@dataclass(frozen=True)
class MergedOptions(Options):
    """How much of what followed is drafted.

    Attributes:
        nodes: drafted tokens, the commonest ones.
        length: levels of the tree at most.
    """

    nodes: int
    length: int

    @property
    def words(self) -> str:
        """`merged tree of 16, depth up to 8`."""
        return f"merged tree of {self.nodes}, depth up to {self.length}"


def why_not(facts: ProblemFacts, method: Method[Any], source: DraftSource) -> str | None:
    """Why a method cannot draft from its source; None when it can."""
    if not set(method.sources) <= set(facts.problem.sources):
        return f'the problem\'s sources leave out "{method.sources[0]}"'
    drafter = Source(source.word)
    if drafter not in facts.profiles:
        return facts.missing_profile(drafter)
    return None


def chains(
    facts: ProblemFacts, method: Method[Any], source: DraftSource, name: str, lengths: Sequence[int]
) -> Family[ChainOptions] | Refusal:
    """One continuation, by its length."""
    reason = why_not(facts, method, source)
    if reason is not None:
        return Refusal(name, reason)
    domain = {"length": Domain(tuple(lengths), "tokens proposed at most")}
    return Family(name, domain, tuple(ChainOptions(length) for length in lengths))


def merged_trees(
    facts: ProblemFacts, method: Method[Any], source: DraftSource, name: str
) -> Family[MergedOptions] | Refusal:
    """Continuations merged into one tree, by nodes and depth, those worth a price."""
    reason = why_not(facts, method, source)
    if reason is not None:
        return Refusal(name, reason)
    pools = facts.profiles[Source(source.word)].evidence
    if not isinstance(pools, Pools):
        wanted = "trees that follow the context"
        return Refusal(name, facts.other_evidence(Source(source.word), wanted))
    domains = {
        "nodes": Domain(TREE_NODES, "drafted tokens, the commonest continuations"),
        "length": Domain(TREE_LENGTHS, "tokens of a continuation at most"),
    }
    return Family(name, domains, tuple(_worthwhile(pools)))


def source_plan(
    facts: ProblemFacts,
    name: str,
    source: DraftSource,
    wanted: str,
    nodes: int,
    path: Path | None = None,
) -> Plan:
    """Learn the text, look up, verify, accept; a request without a match decodes one token.

    Args:
        facts: the problem.
        name: of the plan.
        source: what is looked up.
        wanted: attributes of the lookup, beside its suffixes.
        nodes: drafted tokens at most.
        path: where the source is stored.
    """
    learn = f"update @{STATE} %t0 last={source.last}\n" if source.last else ""
    match = print_atom(source.match)
    body = f"%t0 = root\n{learn}%c = lookup @{STATE} %t0 at=%t0 match={match} {wanted}\n" + judge(
        "%c", nodes, rule=None if facts.greedy else "recursive"
    )
    return single_round_plan(
        facts,
        name,
        (),
        body,
        states=(source.declaration(STATE, path),),
        reproducible=facts.greedy or not source.shares,
    )


def merged_plan(
    facts: ProblemFacts,
    name: str,
    source: DraftSource,
    options: MergedOptions,
    path: Path | None = None,
) -> Plan:
    """`source_plan` of continuations merged into one tree."""
    children = source.occurrences or options.nodes
    wanted = f"children={children} length={options.length} nodes={options.nodes}"
    return source_plan(facts, name, source, wanted, options.nodes, path)


def _worthwhile(pools: Pools) -> Iterator[MergedOptions]:
    """Settings that emit more than any other of no more nodes and levels."""
    found: list[tuple[int, int, float]] = []
    for length in (length for length in TREE_LENGTHS if length <= pools.layers):
        for nodes in TREE_NODES:
            model = pools.cut(length, nodes).model
            tokens = sum(model.accepted_at_least(range(-1, length - 1), (0,) * length))
            others = [t for d, n, t in found if d <= length and n <= nodes]
            if not others or tokens > max(others) + 1e-9:
                found.append((length, nodes, tokens))
                yield MergedOptions(nodes, length)
