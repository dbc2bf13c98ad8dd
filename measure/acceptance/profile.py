"""`specplan profile acceptance`: what the target accepts from every drafter of a problem.

Each profile is one file that grows prompt by prompt; a run that was killed continues from it.
Prompts are taken in groups, and no more of them than the wanted precision needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.measure.acceptance.continuations import continue_prompts, request_of
from specplan.measure.acceptance.recorder import ProfileRecorder, text_digests
from specplan.measure.acceptance.teacher import TracedText
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
    """Profiles of all drafters that the problem names no file for.

    A drafter whose rounds the bench's backend does not run is left out; the search says why.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes; profiles in it are not read.
        progress: called for every prompt.
        limit: most prompts of the profile split.
        precision: a drafter takes no further prompts once the 90 % intervals of tokens per round
            of its candidates are within this part of their means, either way; 0 takes all prompts.
        wanted: drafters to measure; default those of the problem.
        promising: selects the drafters that deserve further prompts, given the profiles so far.

    Returns:
        By drafter; stored under the problem's `profiles` folder with their provenance, which
        includes the half width reached and the number of prompts left.

    Raises:
        UsageError: there are no prompts to measure on.
    """
    ready = bench.problem.stated_acceptance
    if wanted is None:
        wanted = [drafter for drafter in possible_drafters(facts) if drafter not in ready]
    plans = {name: profiling_plan(facts, name) for name in wanted}
    runs = bench.backend.capabilities
    plans = {n: plan for n, plan in plans.items() if plan is None or not runs.refusals(plan)}
    if not plans:
        return {}
    every = bench.prompts(PROFILE)
    prompts, digests = every[:limit], text_digests(every)
    target = bench.models["target"]
    recorders = {
        name: ProfileRecorder.open(bench, facts, name, plan, digests)
        for name, plan in plans.items()
    }
    open_ones = list(recorders)
    for stop in range(LEAST_PROMPTS, len(prompts) + LEAST_PROMPTS, LEAST_PROMPTS):
        outputs = continue_prompts(bench, prompts[:stop], progress)
        texts = [
            TracedText(index, prompt.id, request_of(bench, prompt, index), output, target)
            for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=False))
            if output
        ]
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
        plan = setting.method.plan(facts, setting.options)
        for item in plan.rounds:
            drafting = read_drafting(plan, item, profile.evidence)
            if isinstance(drafting, Drafting):
                yield drafting
