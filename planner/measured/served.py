"""Plans as an engine served them: what was measured there, set beside a problem's prices."""

from __future__ import annotations

from collections.abc import Sequence

from specplan.cost_models.devices.engine_runs import ServedRun
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.plans import MeasuredPlan, MeasuredPlans, plan_key
from specplan.planner.measured.store import add_plans, known_plans
from specplan.planner.method import Family, discover_methods
from specplan.planner.search.settings import PLAIN

WITHIN = 0.15
"""How far a run's load may lie from one of the problem's and still stand for it."""
UNTOLD_ERROR = 0.05
"""Relative half width where a run does not tell how its requests differ."""


def plain_plan(facts: ProblemFacts) -> tuple[Plan, str, str]:
    """The plan of plain decoding, its method and its setting in words."""
    method = discover_methods()[PLAIN]
    family = method.choices(facts)[0]
    assert isinstance(family, Family), "plain decoding is never refused"
    options = family.settings[0]
    return method.written(facts, options), PLAIN, options.words


def served_plan(
    facts: ProblemFacts, run: ServedRun, plan: Plan, method: str, words: str
) -> MeasuredPlan:
    """The run as a measurement of its plan at the problem's load next to it.

    Args:
        facts: the problem.
        run: what the engine said.
        plan: that the engine served.
        method: that wrote the plan.
        words: its setting.

    Raises:
        UsageError: no load of the problem is near the run's, or a run that drafts does not tell
            its tokens per round.
    """
    tokens = 1.0 if method == PLAIN else run.tokens_per_round
    if tokens is None:
        raise UsageError(
            "the file does not state how many tokens a step emits",
            where=run.source,
            remedy="Give a file of the engine that counts drafts and accepted tokens.",
        )
    outputs = {round(request.output_tokens) for request in facts.requests}
    _near(run.output_tokens, sorted(outputs), "output tokens a request", "output_tokens", run)
    return MeasuredPlan(
        plan=plan_key(plan),
        method=method,
        family="",
        words=words,
        point={},
        batch=_near(run.in_flight, facts.batch_sizes, "requests at once", "batch_sizes", run),
        prompt_tokens=_near(
            run.prompt_tokens,
            facts.prompt_lengths,
            "prompt tokens a request",
            "prompt_lengths",
            run,
        ),
        seconds_per_token=run.seconds_per_token,
        error=UNTOLD_ERROR if run.error is None else run.error,
        shared=0.0,
        tokens_per_round=tokens,
        turns=run.requests,
    )


def remember_served(facts: ProblemFacts, plan: MeasuredPlan, run: ServedRun) -> MeasuredPlans:
    """Store a measurement beside those of this problem and device, in place of an older one.

    Raises:
        UsageError: the file of earlier measurements is broken.
    """
    runs = [*known_plans(facts).provenance.get("runs", []), run.source]
    add_plans(facts, MeasuredPlans((plan,), {"runs": runs}))
    return known_plans(facts)


def _near(value: float, known: Sequence[int], what: str, key: str, run: ServedRun) -> int:
    best = min(known, key=lambda candidate: abs(candidate - value))
    if abs(best - value) > WITHIN * best:
        raise UsageError(
            f"the run had {value:.3g} {what}, the problem has {', '.join(map(str, known))}",
            where=f"{run.source}, workload.{key}",
            remedy="Add the run's load to the problem, or run the engine under the problem's.",
        )
    return best
