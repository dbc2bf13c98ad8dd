"""`specplan profile acceptance`: what the target accepts from every drafter of a problem.

Each profile is one file that grows prompt by prompt; a killed run continues from it.
Prompts are taken in groups until the intervals are narrow enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from specplan.cost_models.acceptance.drafters import Drafter, OwnRounds
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.plan import Plan
from specplan.measure.acceptance.continuations import traced_texts
from specplan.measure.acceptance.recorder import ProfileRecorder, text_digests
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import ProblemFacts, possible_drafters, profiling_plan, settings_by

PRECISION = 0.03
"""Relative half width of the 90 % interval of tokens per round that is narrow enough."""
LEAST_PROMPTS = 16
"""Prompts are taken in groups of this size: intervals over fewer prompts cannot be trusted."""
MOST_CANDIDATES = 12
"""Candidates whose intervals are computed, spread evenly over all, the widest among them."""


def measure_acceptance(
    bench: Workbench,
    facts: ProblemFacts,
    *,
    progress: Progress = silent,
    limit: int | None = None,
    precision: float = PRECISION,
    wanted: Sequence[Drafter] | None = None,
    promising: Callable[[Sequence[AcceptanceProfile]], Collection[Drafter]] | None = None,
) -> dict[Drafter, AcceptanceProfile]:
    """Measure profiles of all drafters whose acceptance the problem does not state.

    A drafter whose rounds the bench's backend cannot run is left out; the search says why.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes; their profiles are not read.
        progress: called for every prompt.
        limit: most prompts of the profile split to use; None for all.
        precision: a drafter needs no further prompts once the 90 % intervals of tokens per round
            of all its candidates are within this fraction of their means, either way; 0 uses all
            prompts.
        wanted: drafters to measure; default those of the problem.
        promising: selects the drafters that deserve further prompts, given the profiles so far.

    Returns:
        Profiles by drafter, stored under the problem's `profiles` folder. Their provenance
        includes the half width reached and the number of prompts left.

    Raises:
        UsageError: there are no prompts to measure on.
    """
    plans = _runnable_plans(bench, facts, wanted)
    if not plans:
        return {}
    every = bench.prompts(PROFILE)
    prompts, digests = every[:limit], text_digests(every)
    recorders = {
        name: ProfileRecorder.open(bench, facts, name, plan, digests)
        for name, plan in plans.items()
    }
    open_ones = list(recorders)
    for stop in range(LEAST_PROMPTS, len(prompts) + LEAST_PROMPTS, LEAST_PROMPTS):
        texts = traced_texts(bench, prompts[:stop], progress)
        for name in open_ones:
            recorders[name].record(prompts, texts, progress)
        if precision > 0.0 and stop < len(prompts):
            profiles = {name: recorder.profile() for name, recorder in recorders.items()}
            chosen = open_ones if promising is None else promising([*profiles.values()])
            open_ones = [
                name
                for name in open_ones
                if name in chosen and relative_half_width(facts, profiles[name]) > precision
            ]
        if not open_ones:
            break
    return {
        name: one.finish(prompts, relative_half_width(facts, one.profile()), progress)
        for name, one in recorders.items()
    }


def measure_rounds(
    bench: Workbench,
    facts: ProblemFacts,
    plan: Plan,
    *,
    progress: Progress = silent,
) -> AcceptanceProfile:
    """Run the rounds of a plan that no method wrote on some prompts, and measure what is accepted.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes.
        plan: a verified plan that the bench's backend runs.
        progress: called for every prompt.

    Returns:
        The profile of the plan's own rounds, stored under the problem's `profiles` folder.

    Raises:
        UsageError: there are no prompts to measure on.
    """
    every = bench.prompts(PROFILE)
    prompts = every[: 4 * LEAST_PROMPTS]
    recorder = ProfileRecorder.open(bench, facts, OwnRounds.of(plan), plan, text_digests(every))
    recorder.record(prompts, traced_texts(bench, prompts, progress), progress)
    evidence = recorder.profile().evidence
    drafted = [read_drafting(plan, item, evidence) for item in plan.rounds]
    means = [one.tokens_per_round for one in drafted if isinstance(one, Drafting)]
    width = max(((one.high - one.low) / 2.0 / one.mean for one in means), default=0.0)
    return recorder.finish(prompts, width, progress)


def _runnable_plans(
    bench: Workbench, facts: ProblemFacts, wanted: Sequence[Drafter] | None
) -> dict[Drafter, Plan | None]:
    """Profiling plans that the bench's backend runs, by drafter; None where no rounds are run."""
    stated = bench.problem.stated_acceptance
    if wanted is None:
        wanted = [drafter for drafter in possible_drafters(facts) if drafter not in stated]
    plans = {drafter: profiling_plan(facts, drafter) for drafter in wanted}
    backend = bench.backend.capabilities
    return {
        drafter: plan
        for drafter, plan in plans.items()
        if plan is None or not backend.refusals(plan)
    }


def relative_half_width(facts: ProblemFacts, profile: AcceptanceProfile) -> float:
    """Largest relative half width of tokens per round among candidates; 0 without candidates.

    Args:
        facts: the problem; its methods say what they would draft with this profile.
        profile: of one drafter.
    """
    known = replace(facts, profiles={**facts.profiles, profile.key.drafter: profile})
    drafts = sorted(_drafts(known, profile), key=lambda drafting: drafting.demands.judged[0].nodes)
    step = max(1, -(-len(drafts) // MOST_CANDIDATES))
    intervals = [drafting.tokens_per_round for drafting in drafts[::-1][::step]]
    return max(((one.high - one.low) / 2.0 / one.mean for one in intervals), default=0.0)


def _drafts(facts: ProblemFacts, profile: AcceptanceProfile) -> Iterator[Drafting]:
    """What all candidates of the profile's drafter draft."""
    for setting in settings_by(facts, profile.key.drafter):
        plan = setting.method.written(facts, setting.options)
        for item in plan.rounds:
            drafting = read_drafting(plan, item, profile.evidence)
            if isinstance(drafting, Drafting):
                yield drafting
