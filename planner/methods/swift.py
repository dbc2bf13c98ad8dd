"""The target drafts for itself without blocks that are searched for while it decodes.

SWIFT (Xia et al. 2024, arXiv 2410.06916): drafts are made as those of Draft & Verify, by the target
without so many attentions and so many MLPs, but no set of them is chosen beforehand. While the
first tokens of a request are decoded, one set is on trial: before the drafted chain is verified,
one pass over it tells how often the best tokens without these blocks are those that the text goes
on with. The best set so far drafts (source `skip_sets`); sets carry over from request to request,
so that what one drafts depends on the earlier ones. Two rounds, `search` and `decode`, take turns
by the tokens that were emitted. Trials are priced as if the search never ended; once it has, they
run nothing. A set that is known already costs no trials: `layer_skip`.

The paper leaves out 45 % of the blocks, and ends drafts by confidence after up to 25 tokens; here
their length is fixed, and settings are told apart by running them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.merging import first_then
from specplan.planner.method import Options
from specplan.planner.plan_text import drafted_chain, judge, single_round_plan
from specplan.planner.proposer import Proposer
from specplan.planner.rehearsed import Rehearsed

LENGTHS = (2, 4, 6)
SHARES = (30, 45)
"""Percent of the inner layers' blocks; the paper skips 45."""
SEARCHED = 64
"""Tokens of each request's output during which sets are tried."""
_DRAFT = "target %f cache=@kv pending=1 skip=@skips write=scratch"
_TRIAL = "%m = forward target %c cache=@kv pending=1 skip=@skips trial=true write=scratch"


@dataclass(frozen=True)
class SwiftOptions(Options):
    """How much is left out, and how far is drafted.

    Attributes:
        share: percent of the inner layers whose attention is left out, and as many MLPs.
        length: drafted tokens.
    """

    share: int
    length: int

    @property
    def words(self) -> str:
        """`chain of 4 without 45 % of the blocks`."""
        return f"chain of {self.length} without {self.share} % of the blocks"


class Swift(Rehearsed[SwiftOptions]):
    """Needs no draft model, no training and no search beforehand."""

    name: ClassVar[str] = "swift"
    summary: ClassVar[str] = "the target without blocks that are searched for while it decodes"
    paper: ClassVar[str] = "Xia et al. 2024, arXiv 2410.06916"
    memory: ClassVar[str] = "the sets tried, at most 1000, for all requests"
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "chains without searched blocks"
    domains: ClassVar[Mapping[str, str]] = {
        "share": "percent of the inner layers' blocks left out while drafting",
        "length": "drafted tokens",
    }
    nobody: ClassVar[str] = (
        "the target has no layer between its first and its last, which are both kept"
    )

    def settings(self, drafters: Sequence[str]) -> Iterator[SwiftOptions]:
        """Short and long chains without fewer and more blocks."""
        return (SwiftOptions(share, length) for share in SHARES for length in LENGTHS)

    def settings_of(self, facts: ProblemFacts, known: Iterable[str]) -> Iterator[SwiftOptions]:
        """None of a target without inner layers."""
        return self.settings(()) if _has_inner_layers(facts.target) else iter(())

    def proposers(self, shapes: Mapping[str, ModelShape]) -> tuple[str, ...]:
        """One for each setting."""
        return super().proposers(shapes) if _has_inner_layers(shapes["target"]) else ()

    def plan(self, facts: ProblemFacts, options: SwiftOptions) -> Plan:
        """Draft without the best set's blocks; while sets are tried, one more pass and a lesson."""
        trial, lesson = f"{_TRIAL}\n", "\nupdate @skips %c logits=%m"
        search = _round(facts, self.name, options, trial, lesson)
        decode = _round(facts, self.name, options)
        return first_then(search, SEARCHED, decode, ("search", "decode"))

    def proposer(self, options: SwiftOptions) -> str | None:
        """The target in this way."""
        return Proposer("target", way=f"swift{options.share}_{options.length}").name


def _round(
    facts: ProblemFacts, name: str, options: SwiftOptions, trial: str = "", lesson: str = ""
) -> Plan:
    """A plan of one round.

    Args:
        facts: the problem.
        name: of the plan.
        options: the setting.
        trial: what runs before the drafts are verified.
        lesson: what runs at the very end.
    """
    layers, length = facts.target.num_layers, options.length
    blocks = max(1, (layers - 2) * options.share // 100)
    drafted = drafted_chain(length, _DRAFT, drawn=not facts.greedy)
    judged = judge("%c", length, rule=None if facts.greedy else "token")
    source = f"skip_sets(layers={layers}, attention={blocks}, mlp={blocks})"
    return single_round_plan(
        facts,
        name,
        (),
        f"{drafted}\n{trial}{judged}{lesson}",
        states=(f"@skips = source {source} scope=process",),
        reproducible=facts.greedy,
    )


def _has_inner_layers(target: ModelShape) -> bool:
    return target.num_layers > 2


METHOD = Swift()
