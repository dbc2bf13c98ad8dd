"""A token leaves the target where a trained policy says so, and its state is copied upward.

ConsistentEE (Zeng et al. 2023, arXiv 2312.11882): a policy network at each exit reads the state
there and gives the probability of leaving. It is trained by a policy gradient on the reward -CE of
the token at the exit minus a price of the depth, which is lower the later a token's exits agree
(`specplan train --exits policy`). A token leaves from a probability on, 0.5 in the paper. Lossy;
calibrated to a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.exits import POLICY, Exits, copied_plan, trained_exits

BARS = (0.99, 0.95, 0.9, 0.8, 0.65, 0.5)


@dataclass(frozen=True)
class PolicyExitOptions(Options):
    """How probable leaving must be."""

    reads = "exits where the policy leaves with {bar}"

    bar: Annotated[float, Option("probability from which a token leaves, calibrated")]


class PolicyExit(Exits[PolicyExitOptions]):
    """The policy weighs the accuracy of each exit against the layers above it."""

    summary = "tokens leave the target where a trained policy says so"
    paper = "ConsistentEE: Zeng et al. 2023, arXiv 2312.11882"
    differs = (
        "The policy alone is trained, and the target with its exits stays as it is; it reads "
        "states without the final norm's weights, at three exits instead of every layer; the "
        "probability from which a token leaves is calibrated."
    )
    memory = "the hidden states of each exit layer"
    family = "exits by policy"

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """Also without a policy."""
        if facts.problem.exit_policy is None:
            return Reason(
                "no policy is given: train one with `specplan train --exits policy` and name it as "
                "exit_policy",
                Cause.OPT_IN,
            )
        return super().unavailable(facts)

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, PolicyExitOptions]]:
        """Probabilities from safe to risky."""
        yield from (("policy", PolicyExitOptions(bar)) for bar in BARS)

    def plan(self, facts: ProblemFacts, options: PolicyExitOptions) -> Plan:
        """Exit after exit, as long as the policy goes on."""
        trained = trained_exits(facts, POLICY)
        assert trained is not None, "else there are no settings"
        return copied_plan(facts, self, trained.layers, POLICY, options.bar)


METHOD = PolicyExit()
