"""What a round emits: the tree that it judges, and how much of it is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specplan.cost_models.acceptance.law import Floats
from specplan.cost_models.acceptance.pools import Pools
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.acceptance.turns import Leg, Turns
from specplan.cost_models.closed_forms import expected_rounds
from specplan.cost_models.cost import Quantity
from specplan.cost_models.demands import RoundDemands
from specplan.cost_models.intervals import Interval
from specplan.cost_models.pricing import Unpriced, read_round
from specplan.cost_models.stopping import stopping_loops, with_ends
from specplan.ir.plan import Plan, Round


@dataclass(frozen=True)
class Drafting:
    """The last tree that a round judges, and the acceptance that says what is emitted of it.

    Attributes:
        demands: what the round asks of a device.
        parents: per drafted node, its parent, -1 for the root; of a tree whose shape depends on
            data, one node for each token that may be accepted: the path, whatever it is.
        ranks: per drafted node, its 0-based order among siblings; 0 along such a path.
        acceptance: of the proposer, for such a path that of the very tree; None where nothing is
            drafted.
        lag_shares: per cache, the share of rounds that end at a node which its model never ran,
            where the acceptance was measured with it; None where the tree's nodes tell.
    """

    demands: RoundDemands
    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    acceptance: AcceptanceProfile | None
    lag_shares: Mapping[str, float] | None = None

    @property
    def tokens_per_round(self) -> Interval:
        """Emitted by one request, the bonus included."""
        if self.acceptance is None:
            return Interval.exact(1.0)
        return self.acceptance.tokens_per_round(self.parents, self.ranks)

    @property
    def token_draws(self) -> Floats | None:
        """The same under draws of what the acceptance leaves open; None if nothing is."""
        if self.acceptance is None:
            return None
        return self.acceptance.token_draws(self.parents, self.ranks)

    def rounds(self, output_tokens: int, batch: int) -> Interval:
        """Rounds until the slowest request of a batch has emitted `output_tokens`."""
        if self.acceptance is None:
            return Interval.exact(float(output_tokens))
        return self.acceptance.rounds(self.parents, self.ranks, output_tokens, batch)

    def overshoot(self, tokens: int) -> float:
        """Tokens that the round which reaches so many emits beyond them, in the mean of requests.

        By Wald's identity, from the renewal argument of `expected_rounds`.
        """
        if self.acceptance is None:
            return 0.0
        at_least = self.acceptance.accepted_at_least(self.parents, self.ranks)
        return (1.0 + sum(at_least)) * expected_rounds(tokens, at_least) - tokens

    def lag(self, batch: Quantity) -> dict[str, Quantity]:
        """Per cache, P(some request of the batch has more pending than the root)."""
        if self.acceptance is None:
            return {}
        if self.lag_shares is not None:
            return {cache: _some(share, batch) for cache, share in self.lag_shares.items()}
        ends = self.acceptance.end_shares(self.parents, self.ranks)
        return lag_probabilities(self.demands.not_run, ends, batch)


def read_drafting(
    plan: Plan, item: Round, acceptance: AcceptanceProfile | None
) -> Drafting | Unpriced:
    """What a round drafts and asks for, or why it has no acceptance law."""
    demands = read_round(plan, item)
    if isinstance(demands, Unpriced):
        return demands
    if demands.legs is not None and acceptance is not None and acceptance.turns is not None:
        return _in_turns(demands, acceptance, acceptance.turns, demands.legs)
    ran = acceptance is not None and acceptance.key.how == "run"
    times = len(demands.judged)
    if times == 0 or (times > 1 and not ran):  # what ran tells of the last judgement alone
        return Unpriced("", f"rounds that judge {times} times have no acceptance law yet")
    tree = demands.judged[-1]
    if tree.parents == ():
        return Drafting(demands, (), (), None)
    if acceptance is not None and acceptance.turns is not None:
        return Unpriced("", "turns say nothing of drafts in which model and source take none")
    if acceptance is None:
        return Unpriced("", "the plan drafts, and no acceptance profile is given")
    if acceptance.key.how == "run":
        return _as_it_ran(_as_it_ended(plan, item, demands, acceptance), acceptance, tree.depth)
    if acceptance.pools is not None and demands.looked_up is not None:
        return _looked_up(demands, acceptance, *demands.looked_up)
    if acceptance.pools is not None:
        return _grown_by_beam(demands, acceptance, acceptance.pools)
    if tree.parents is None or tree.ranks is None:
        return Unpriced(
            "",
            "trees whose shape depends on data have an acceptance law only where a beam grows them "
            "or a source gives them, and the profile is of that: run `specplan profile acceptance`",
        )
    return Drafting(demands, tree.parents, tree.ranks, acceptance)


def _as_it_ran(demands: RoundDemands, acceptance: AcceptanceProfile, depth: int) -> Drafting:
    """A draft of any shape, of which is told how much was accepted round by round.

    What a model that drafts has pending then is not told: every round is taken to lag.
    """
    path = tuple(range(-1, depth - 1))
    return Drafting(demands, path, (0,) * depth, acceptance, {})


def _as_it_ended(
    plan: Plan, item: Round, demands: RoundDemands, acceptance: AcceptanceProfile
) -> RoundDemands:
    """With how many trips the round's loop took, where it has one that may end and that is told."""
    if not acceptance.trips or len(stopping_loops(item)) != 1:
        return demands
    return with_ends(plan, item, demands, acceptance.stopped)


def _grown_by_beam(
    demands: RoundDemands, acceptance: AcceptanceProfile, pools: Pools
) -> Drafting | Unpriced:
    """A tree of a beam, whose acceptance was measured in its pools."""
    tree, beam = demands.pool, acceptance.key.beam
    if tree is None:
        return Unpriced("", "pools say nothing of trees that no beam grows")
    if beam != tree.beam or pools.layers < tree.layers:
        return Unpriced(
            "",
            f"the profile holds pools of {pools.layers} layers by a beam of {beam}, the plan grows "
            f"{tree.layers} by one of {tree.beam}",
        )
    share = pools.lag_share(tree.layers, tree.nodes)
    return Drafting(
        demands,
        tuple(range(-1, tree.layers - 1)),
        (0,) * tree.layers,
        acceptance.of_pool(tree.layers, tree.nodes),
        {tree.cache: share},
    )


def _looked_up(
    demands: RoundDemands, acceptance: AcceptanceProfile, length: int, nodes: int
) -> Drafting | Unpriced:
    """A tree merged from what a source found, whose acceptance was measured in such trees."""
    if acceptance.pools is None or acceptance.pools.layers < length:
        return Unpriced("", f"the profile knows no looked-up trees of {length} levels")
    path = tuple(range(-1, length - 1))
    return Drafting(demands, path, (0,) * length, acceptance.of_pool(length, nodes), {})


def _in_turns(
    demands: RoundDemands, acceptance: AcceptanceProfile, turns: Turns, legs: tuple[Leg, ...]
) -> Drafting | Unpriced:
    """A chain that a model and a source draft in turns, as its profile says of both."""
    problem = turns.problem_of(legs)
    if problem is not None:
        return Unpriced("", problem)
    most = sum(leg.most for leg in legs)
    path = tuple(range(-1, most - 1))
    return Drafting(demands, path, (0,) * most, acceptance.of_turns(legs))


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
        found[cache] = _some(sum(end_shares[node + 1] for node in nodes), batch)
    return found


def _some(share: float, batch: Quantity) -> Quantity:
    """P(at least one request of the batch), from the share of requests."""
    return 1.0 - (1.0 - min(1.0, share)) ** batch
