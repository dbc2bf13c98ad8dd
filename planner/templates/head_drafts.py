"""How heads choose the tokens that they draft: best ranks, or draws from their distribution.

At temperature 0 there are only best ranks. Above, the target accepts a head's best rank with its
own probability of that token; a draw from the head's distribution q with 1 - TV(p, q) in the mean,
p the target's (Leviathan et al. 2022, arXiv 2211.17192, section 3.2). Which is more depends on the
head and the text: both are measured, and the search compares their prices. Children of a node are
drawn without replacement and judged by recursive rejection (Jeon et al. 2024, arXiv 2402.14160).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

from specplan.cost_models.acceptance.drafters import Drafter, Drawn, Model
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Method, Option, Options, Refusal
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import ahead_pass
from specplan.planner.templates.static_trees import TreeOptions
from specplan.planner.trees import StaticTree, chain
from specplan.planner.trees.candidates import worthwhile_trees

ACCEPTANCE = (
    "rank of the accepted child at each depth, along the target's own texts, of best ranks and of "
    "draws"
)
IsDrawn = Annotated[
    bool, Option("whether tokens are drawn from the head's distribution; else its best ranks")
]


@dataclass(frozen=True)
class HeadChainOptions(Options):
    """Which head drafts a chain, how far, and how it chooses tokens."""

    reads = "chain of {length} by {draft}{how}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens")]
    drawn: IsDrawn = False

    @property
    def how(self) -> str:
        """`, drawn`, or nothing."""
        return in_words(drawn=self.drawn)

    @property
    def rule(self) -> str:
        """See `HeadTreeOptions.rule`."""
        return rule_of(drawn_chain=self.drawn)


@dataclass(frozen=True)
class HeadTreeOptions(TreeOptions):
    """Which head drafts, what shape, and how it chooses tokens."""

    drawn: IsDrawn = False

    @property
    def words(self) -> str:
        """`chain of 4 by eagle`, `tree of 12, depth 5, by eagle, drawn`."""
        return super().words + in_words(drawn=self.drawn)

    @property
    def rule(self) -> str:
        """The acceptance rule above temperature 0, for `draft_and_verify`."""
        return rule_of(drawn_chain=self.drawn and self.tree.is_chain)


HeadOptionsT = TypeVar("HeadOptionsT", bound=HeadChainOptions | HeadTreeOptions)


class ByHeads(Method[HeadOptionsT]):
    """A method whose drafters are heads, each with families by best ranks and by draws.

    Attributes:
        none: why there are no families where no head of the problem suits.
    """

    none: ClassVar[str]
    acceptance = ACCEPTANCE

    @abstractmethod
    def heads(self, facts: ProblemFacts) -> Mapping[str, int]:
        """The heads that suit, by name, and the most levels that each drafts."""

    @abstractmethod
    def families(
        self, facts: ProblemFacts, drafter: Model | Drawn, most: int
    ) -> Iterator[Family[HeadOptionsT] | Refusal]:
        """The families of a head that chooses tokens in one way."""

    def choices(self, facts: ProblemFacts) -> Sequence[Family[HeadOptionsT] | Refusal]:
        """Those of every head; above temperature 0 in both ways."""
        return [
            family
            for head, most in self.heads(facts).items()
            for drafter in ways(facts, head)
            for family in self.families(facts, drafter, most)
        ] or [Refusal("any", self.none)]

    def drafter(self, facts: ProblemFacts, options: HeadOptionsT) -> Drafter | None:
        """The head."""
        return Drawn(options.draft) if options.drawn else Model(options.draft)

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """Every head whose tokens are drawn."""
        return tuple(way for head in self.heads(facts) for way in ways(facts, head)[1:])


class ChainsAndTrees(ByHeads[HeadTreeOptions]):
    """Chains of every length, and trees by nodes and depth."""

    def families(
        self, facts: ProblemFacts, drafter: Model | Drawn, most: int
    ) -> Iterator[Family[HeadTreeOptions] | Refusal]:
        """Chains, then trees."""
        head, how = drafter.name, in_words(drawn=isinstance(drafter, Drawn))

        def settings(shapes: Iterable[StaticTree]) -> Iterator[HeadTreeOptions]:
            return (
                HeadTreeOptions(head, one.parents, one.ranks, bool(how))
                for one in shapes
                if one.depth <= most
            )

        chains = map(chain, range(1, most + 1))
        yield family_by(facts, f"chain by {head}{how}", drafter, lambda _: settings(chains))
        yield family_by(
            facts,
            f"static tree by {head}{how}",
            drafter,
            lambda _: settings(worthwhile_trees(facts, drafter)),
            trees=True,
        )


def lattice_text(facts: ProblemFacts, heads: str, width: int, depth: int) -> str:
    """The best tokens of heads for several tokens ahead, combined: the tree `%w`.

    Args:
        facts: the problem.
        heads: their role.
        width: children of every node.
        depth: heads, and levels.
    """
    return f"""%t0 = root
%x = {ahead_pass(facts, heads, depth).over("%t0")}
%w = repeat {depth} (%t = %t0) {{
    %f = pick %t of=newest
    %n = grow %t at=%f logits=%x children={width}
    yield %n
}}"""


def ways(facts: ProblemFacts, head: str) -> tuple[Model | Drawn, ...]:
    """How a head may choose tokens: its best ranks, and above temperature 0 draws."""
    return (Model(head),) if facts.greedy else (Model(head), Drawn(head))


def rule_of(*, drawn_chain: bool) -> str:
    """The acceptance rule above temperature 0: a drawn chain is judged token by token."""
    return "token" if drawn_chain else "recursive"


def in_words(*, drawn: bool) -> str:
    """`, drawn`, or nothing."""
    return ", drawn" if drawn else ""
