"""Passes in order, each checked: a plan is verified before the first and after every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeAlias

from specplan.ir.errors import SpecplanError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan, verify_plan
from specplan.passes.canonicalise import canonicalise
from specplan.passes.renumber import renumber
from specplan.passes.share_prefix import share_prefix
from specplan.passes.unroll import unroll

Pass: TypeAlias = Callable[[Plan], Plan]
Watch: TypeAlias = Callable[[str, Plan, bool, float], None]
"""Called after each pass as (name, plan, changed, seconds)."""

PASSES: tuple[Pass, ...] = (
    canonicalise,
    share_prefix,
    unroll,
    renumber,
)
"""What makes a round static and minimal, in order."""


class PassError(SpecplanError):
    """A pass broke a rule of the plan language, or ended in an error: a defect of the pass."""


def run_passes(plan: Plan, passes: Sequence[Pass] = PASSES, *, watch: Watch | None = None) -> Plan:
    """The plan after all passes.

    Args:
        plan: any plan; it is verified first.
        passes: pure functions that return the same object when nothing changed.
        watch: told of each pass, for printing and timing.

    Raises:
        UsageError: the plan given breaks a rule.
        PassError: a pass broke one, or raised something; names it and those that ran before.
    """
    check_plan(plan)
    ran: list[str] = []
    for item in passes:
        name = getattr(item, "__name__", type(item).__name__)
        start = perf_counter()
        after = _applied(item, plan, name, ran)
        seconds = perf_counter() - start
        changed = after is not plan
        if changed:
            _check(after, name, ran)
        if watch is not None:
            watch(name, after, changed, seconds)
        plan = after
        ran.append(name)
    return plan


def _applied(item: Pass, plan: Plan, name: str, ran: Sequence[str]) -> Plan:
    try:
        return item(plan)
    except Exception as error:
        raise _defect(plan, name, ran, f"raised {type(error).__name__}: {error}") from error


def _check(plan: Plan, name: str, ran: Sequence[str]) -> None:
    broken = verify_plan(plan)
    if broken:
        raise _defect(plan, name, ran, f"broke a rule: {broken[0]}")


def _defect(plan: Plan, name: str, ran: Sequence[str], what: str) -> PassError:
    before = f" after {', '.join(ran)}" if ran else ""
    return PassError(
        f"pass {name}{before} {what}",
        where=f"plan {plan.name}",
        remedy="Report this with the plan's text.",
    )
