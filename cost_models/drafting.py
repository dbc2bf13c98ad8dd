"""What a round emits: the tree that it judges, and how much of it is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.cost import Quantity
from specplan.cost_models.demands import RoundDemands
from specplan.cost_models.intervals import Interval
from specplan.cost_models.pricing import Unpriced, read_round
from specplan.ir.plan import Plan, Round


@dataclass(frozen=True)
class Drafting:
    """The one tree that a round judges, and the acceptance that says what is emitted of it.

    Attributes:
        demands: what the round asks of a device.
        parents: per drafted node, its parent, -1 for the root.
        ranks: per drafted node, its 0-based order among siblings.
        acceptance: of the proposer; None where nothing is drafted.
    """

    demands: RoundDemands
    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    acceptance: AcceptanceProfile | None

    @property
    def tokens_per_round(self) -> Interval:
        """Emitted by one request, the bonus included."""
        if self.acceptance is None:
            return Interval.exact(1.0)
        return self.acceptance.tokens_per_round(self.parents, self.ranks)

    def rounds(self, output_tokens: int, batch: int) -> Interval:
        """Rounds until the slowest request of a batch has emitted `output_tokens`."""
        if self.acceptance is None:
            return Interval.exact(float(output_tokens))
        return self.acceptance.rounds(self.parents, self.ranks, output_tokens, batch)

    def lag(self, batch: Quantity) -> dict[str, Quantity]:
        """Per cache, P(some request of the batch has more pending than the root)."""
        if self.acceptance is None:
            return {}
        ends = self.acceptance.end_shares(self.parents, self.ranks)
        return lag_probabilities(self.demands.not_run, ends, batch)


def read_drafting(
    plan: Plan, item: Round, acceptance: AcceptanceProfile | None
) -> Drafting | Unpriced:
    """What a round drafts and asks for, or why it has no acceptance law."""
    demands = read_round(plan, item)
    if isinstance(demands, Unpriced):
        return demands
    if len(demands.judged) != 1:
        times = len(demands.judged)
        return Unpriced("", f"rounds that judge {times} times have no acceptance law yet")
    (tree,) = demands.judged
    if tree.parents is None or tree.ranks is None:
        return Unpriced("", "trees whose shape depends on data have no acceptance law yet")
    if tree.parents and acceptance is None:
        return Unpriced("", "the plan drafts, and no acceptance profile is given")
    drafts = acceptance if tree.parents else None
    return Drafting(demands, tree.parents, tree.ranks, drafts)


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
    found = {}
    for cache, nodes in (not_run or {}).items():
        share = min(1.0, sum(end_shares[node + 1] for node in nodes))
        found[cache] = 1.0 - (1.0 - share) ** batch
    return found
