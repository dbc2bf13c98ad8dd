"""Several independent chains of a draft model, judged together at the root.

SpecTr (Sun et al. 2023, arXiv 2310.15141): k chains are drawn independently from the draft model's
law, and K-SEQ scans their first tokens under one level of acceptance; all chains that begin with
the accepted one go on, and their next tokens are scanned in the same way. At temperature 0 the
chains begin with the best ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

CHAINS = (2, 4, 8)
LENGTHS = (1, 2, 3, 4, 6)


@dataclass(frozen=True)
class SpecTrOptions(Options):
    """Which model drafts, and how much.

    Attributes:
        draft: name of the draft model.
        chains: drawn independently.
        length: tokens of each.
    """

    draft: str
    chains: int
    length: int

    @property
    def nodes(self) -> int:
        """Drafted tokens."""
        return self.chains * self.length

    @property
    def words(self) -> str:
        """`4 chains of 3 by draft`."""
        return f"{self.chains} chains of {self.length} by {self.draft}"


class SpecTr(ProfiledByRunning[SpecTrOptions]):
    """Several chances at the first token for one pass of the draft model each further level."""

    name: ClassVar[str] = "spectr"
    shape: ClassVar[str] = "static tree"
    summary: ClassVar[str] = "chains drawn independently from a draft model, judged by K-SEQ"
    paper: ClassVar[str] = "Sun et al. 2023, arXiv 2310.15141"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "independent chains"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "the draft model",
        "chains": "chains drawn independently",
        "length": "tokens of each chain",
    }

    def settings(self, models: Sequence[str]) -> Iterator[SpecTrOptions]:
        """2 to 8 chains of 1 to 6 tokens by every draft model."""
        return (
            SpecTrOptions(draft, chains, length)
            for draft in models
            for chains in CHAINS
            for length in LENGTHS
        )

    def plan(self, facts: ProblemFacts, options: SpecTrOptions) -> Plan:
        """Draw the chains, verify them all, accept by K-SEQ."""
        draft, chains, cache = options.draft, options.chains, cache_of(options.draft)

        drawn, more = ("", ""), ("", "")
        if not facts.greedy:
            uniforms = f"uniform {chains} stream=draft"
            drawn = f"%u0 = {uniforms}\n", " how=draw by=%u0"
            more = f"    %u = {uniforms} offset={chains}\n", " how=draw by=%u"
        tree = "%c" if options.length == 1 else "%t1"
        body = f"""%t0 = root
%q0 = forward {draft} %t0 cache={cache} pending=2
{drawn[0]}{tree} = grow %t0 at=%t0 logits=%q0 children={chains}{drawn[1]}
"""
        if options.length > 1:
            body += f"""%c = repeat {options.length - 1} (%t = %t1) {{
    %f = pick %t of=newest
    %q = forward {draft} %f cache={cache}
{more[0]}    %n = grow %t at=%f logits=%q{more[1]}
    yield %n
}}
"""
        tree = "%c"
        if options.length > 1 and not facts.greedy:
            body += "%k = graft %c same=merge\n"
            tree = "%k"
        body += judge(tree, options.nodes, rule=None if facts.greedy else "k_seq")
        return single_round_plan(facts, self.name, (draft,), f"{body}\ncommit {cache} %e")


METHOD = SpecTr()
