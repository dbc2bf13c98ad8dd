"""Whether the problem's backend runs a plan, told before anything is chosen."""

from __future__ import annotations

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts


def unsupported(facts: ProblemFacts, plan: Plan) -> str | None:
    """The first thing in a well-typed plan that the backend cannot run, and how many more.

    None where it runs all of it, and where no backend is to run the plan.
    """
    if facts.capabilities is None:
        return None
    found = facts.capabilities.refusals(plan)
    if not found:
        return None
    return found[0].words + (f", and {len(found) - 1} more" if len(found) > 1 else "")
