"""What every kind of evidence answers, and what a round drafts according to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from specplan.cost_models.acceptance.model import AcceptanceModel, Floats
from specplan.cost_models.cost import Quantity
from specplan.cost_models.formulas.closed_forms import expected_rounds
from specplan.cost_models.intervals import Interval
from specplan.cost_models.rounds.demands import RoundDemands
from specplan.cost_models.rounds.pricing import Unpriced, read_round
from specplan.ir.plan import Plan, Round

EvidenceT = TypeVar("EvidenceT", bound="Evidence")
Rows = tuple[tuple[int, ...], ...]
"""Per prompt, a number for every position of the target's continuation."""
MOST = 1 << 30
"""No count in a profile is larger."""


class Evidence(ABC):
    """What is known of the acceptance of one drafter.

    Attributes:
        kind: its name in files.
        ranked: whether it knows second choices, so that it prices static trees.
        of_exits: whether it tells where tokens leave the model, of plans that draft nothing.
    """

    kind: ClassVar[str]
    ranked: ClassVar[bool] = False
    of_exits: ClassVar[bool] = False

    @property
    @abstractmethod
    def model(self) -> AcceptanceModel:
        """What is accepted of static trees, or of the path of those that follow the context."""

    @abstractmethod
    def problem(self) -> str | None:
        """What is wrong with its numbers; None when nothing is."""

    @property
    def knows_second_choices(self) -> bool:
        """Whether it says anything of children beyond the first."""
        return self.ranked

    @property
    def traces(self) -> Sequence[Sequence[Any]]:
        """What was measured, per prompt and position; empty where the evidence is no trace."""
        return ()

    @property
    def positions(self) -> int:
        """Positions measured; 0 where the evidence is no trace."""
        return sum(len(row) for row in self.traces)

    @property
    def prompts(self) -> int:
        """Prompts measured; 0 where the evidence is no trace."""
        return sum(bool(row) for row in self.traces)

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """What a round drafts and how much of it is accepted, or why this evidence cannot say.

        Here: a static tree that is judged once, priced by `model`.

        Args:
            plan: holds the round.
            item: a round that drafts.
            demands: what it asks of a device, at least one judged tree.
        """
        reason = judged_several_times(demands)
        if reason is not None:
            return reason
        tree = demands.judged[-1]
        if tree.parents is None or tree.ranks is None:
            return NO_STATIC_SHAPE
        if any(tree.ranks) and not self.ranked:
            return f"the acceptance profile holds {self.kind}, and trees need second choices"
        return Drafting(demands, tree.parents, tree.ranks, self)

    def with_all_trips(self) -> Evidence:
        """The same for a backend that runs every trip of a loop that may end early."""
        return self

    def as_data(self) -> dict[str, Any]:
        """Its fields, ready for JSON."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_data(cls: type[EvidenceT], data: Mapping[str, Any]) -> EvidenceT:
        """The inverse of `as_data`.

        Raises:
            TypeError: a field is missing, unknown or no list where one is due.
            ValueError: a text holds something else than numbers.
        """
        return cls(**{name: _tuples(value) for name, value in data.items()})


class Trace(Evidence):
    """What was measured position by position, along texts.

    Attributes:
        rows: per prompt and position, a number or several.
    """

    rows: Sequence[Sequence[Any]]

    @property
    def traces(self) -> Sequence[Sequence[Any]]:
        """See `Evidence.traces`."""
        return self.rows


class TraceOfSeveral(Trace):
    """A trace with several whole numbers at each position, which are one text in files."""

    def as_data(self) -> dict[str, Any]:
        """Its fields, ready for JSON."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        rows = [[" ".join(map(str, position)) for position in row] for row in self.rows]
        return {**data, "rows": rows}

    @classmethod
    def from_data(cls: type[EvidenceT], data: Mapping[str, Any]) -> EvidenceT:
        """See `Evidence.from_data`."""
        rows = (tuple(tuple(map(int, str(text).split())) for text in row) for row in data["rows"])
        return cls(**{**data, "rows": tuple(rows)})


NO_STATIC_SHAPE = (
    "trees whose shape depends on data have acceptance only where a beam grows them or a source "
    "gives them, and the profile was measured with it: run `specplan profile acceptance`"
)


@dataclass(frozen=True)
class Drafting:
    """The last tree that a round judges, and the evidence that says what is emitted of it.

    Attributes:
        demands: what the round asks of a device.
        parents: per drafted node, its parent, -1 for the root; of a tree whose shape depends on
            data, one node for each token that may be accepted: the path, whatever it is.
        ranks: per drafted node, its 0-based order among siblings; 0 along such a path.
        evidence: of what is drafted, for such a path that of the very tree; None where nothing is
            drafted.
        lag_shares: per cache, the share of rounds that end at a node which its model never ran,
            where the acceptance was measured with it; None where the tree's nodes tell.
    """

    demands: RoundDemands
    parents: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    evidence: Evidence | None = None
    lag_shares: Mapping[str, float] | None = None

    @classmethod
    def of_path(
        cls,
        demands: RoundDemands,
        depth: int,
        evidence: Evidence,
        lag_shares: Mapping[str, float] | None = MappingProxyType({}),
    ) -> Drafting:
        """A draft of any shape of which at most `depth` tokens are accepted.

        Its nodes tell no lag: see `lag_shares`, which is None for a chain.
        """
        return cls(demands, tuple(range(-1, depth - 1)), (0,) * depth, evidence, lag_shares)

    @property
    def tokens_per_round(self) -> Interval:
        """Emitted by one request, the bonus included."""
        if self.evidence is None:
            return Interval.exact(1.0)
        return self.evidence.model.tokens_per_round(self.parents, self.ranks)

    @property
    def token_draws(self) -> Floats | None:
        """The same under draws of what the evidence leaves open; None if nothing is."""
        if self.evidence is None:
            return None
        return self.evidence.model.token_draws(self.parents, self.ranks)

    def rounds(self, output_tokens: int, batch: int) -> Interval:
        """Rounds until the slowest request of a batch has emitted `output_tokens`."""
        if self.evidence is None:
            return Interval.exact(float(output_tokens))
        return self.evidence.model.rounds(self.parents, self.ranks, output_tokens, batch)

    def overshoot(self, tokens: int) -> float:
        """Tokens that the round which reaches so many emits beyond them, in the mean of requests.

        By Wald's identity, from the renewal argument of `expected_rounds`.
        """
        if self.evidence is None:
            return 0.0
        at_least = self.evidence.model.accepted_at_least(self.parents, self.ranks)
        return (1.0 + sum(at_least)) * expected_rounds(tokens, at_least) - tokens

    def lag(self, batch: Quantity) -> dict[str, Quantity]:
        """Per cache, P(some request of the batch has more pending than the root).

        Of a cache that keeps no drafted node, the accepted part of the depth: so much of what may
        be pending is.
        """
        if self.lag_shares is None:
            if self.evidence is None:
                return {}
            ends = self.evidence.model.end_shares(self.parents, self.ranks)
            shares = lag_probabilities(self.demands.not_run, ends, batch)
        else:
            shares = {cache: _some(share, batch) for cache, share in self.lag_shares.items()}
        depth = max((tree.depth for tree in self.demands.judged), default=0)
        again = (self.tokens_per_round.mean - 1.0) / max(depth, 1)
        return shares | dict.fromkeys(self.demands.replayed, again)


def read_drafting(plan: Plan, item: Round, evidence: Evidence | None) -> Drafting | Unpriced:
    """What a round drafts and asks for, or why nothing says how much of it is accepted.

    Args:
        plan: a verified plan.
        item: one of its rounds.
        evidence: of who drafts in it; None where nobody does.
    """
    demands = read_round(plan, item)
    if isinstance(demands, Unpriced):
        return demands
    nothing = len(demands.judged) == 1 and demands.judged[0].parents == ()
    if nothing and not (evidence is not None and evidence.of_exits):
        return Drafting(demands)
    if not demands.judged or evidence is None:
        reason = judged_several_times(demands)
        return Unpriced("", reason or "the plan drafts, and no acceptance profile is given")
    drafting = evidence.drafts(plan, item, demands)
    return Unpriced("", drafting) if isinstance(drafting, str) else drafting


def judged_several_times(demands: RoundDemands) -> str | None:
    """Why a round whose trees are not judged once has no price here; None where one is."""
    times = len(demands.judged)
    return None if times == 1 else f"rounds that judge {times} times have no acceptance model yet"


def lag_probabilities(
    not_run: Mapping[str, Sequence[int]] | None, end_shares: Sequence[float], batch: Quantity
) -> dict[str, Quantity]:
    """Per cache, P(some request of the batch has more pending than the root).

    A request lags where its accepted path ended at a node that the cache's model never ran.

    Args:
        not_run: see `RoundDemands`; where it is not known, 1 is assumed.
        end_shares: P(a round's last accepted node is the root, node 0, node 1, ...).
        batch: requests, a number or an array.
    """
    return {
        cache: _some(sum(end_shares[node + 1] for node in nodes), batch)
        for cache, nodes in (not_run or {}).items()
    }


def problem_of_rows(rows: Sequence[Sequence[Any]], least: int) -> str | None:
    """What is wrong with rows of whole numbers, `least` or more; None when nothing is."""
    if not any(len(row) for row in rows):
        return "holds no measurement"
    for value in (value for row in rows for value in row):
        if type(value) is not int or not least <= value <= MOST:
            return f"{value!r} is out of range"
    return None


def _some(share: float, batch: Quantity) -> Quantity:
    """P(at least one request of the batch), from the share of requests."""
    return 1.0 - (1.0 - min(1.0, share)) ** batch


def _tuples(value: Any) -> Any:
    """Lists, as JSON has them, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
