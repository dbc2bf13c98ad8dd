"""One token at a time: the plan that every other one must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import plain_plan


@dataclass(frozen=True)
class AutoregressiveOptions(Options):
    """Nothing to choose."""

    reads = "plain"


class Autoregressive(Method[AutoregressiveOptions]):
    """The target alone; accepting an empty tree gives the bonus token and nothing else."""

    summary = "one token per forward of the target; drafts nothing"
    engine_drafter = "none"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[AutoregressiveOptions] | Refusal]:
        """The one choice there is."""
        return [Family.of("plain", [AutoregressiveOptions()])]

    def plan(self, facts: ProblemFacts, options: AutoregressiveOptions) -> Plan:
        """`root, forward, accept, emit, commit`."""
        return plain_plan(facts, self)

    def drafter(self, facts: ProblemFacts, options: AutoregressiveOptions) -> Drafter | None:
        """None: nothing is drafted."""
        return None


METHOD = Autoregressive()
