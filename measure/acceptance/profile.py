"""`specplan profile acceptance`: what the target accepts from every drafter of a problem.

Each profile is one file that grows prompt by prompt; a run that was killed goes on where it was.
Prompts are taken in groups, and no more of them than the wanted precision needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.measure.acceptance.continuations import continue_prompts
from specplan.measure.acceptance.precision import LEAST_PROMPTS, PRECISION
from specplan.measure.acceptance.recorder import Growing, States
from specplan.measure.acceptance.stored_traces import text_digests
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import ProblemFacts, possible_drafters, profiling_plan


def measure_acceptance(
    bench: Workbench,
    facts: ProblemFacts,
    *,
    progress: Progress = silent,
    limit: int | None = None,
    precision: float = PRECISION,
    wanted: Sequence[Drafter] | None = None,
    hopeful: Callable[[Sequence[AcceptanceProfile]], Collection[Drafter]] | None = None,
) -> dict[Drafter, AcceptanceProfile]:
    """Profiles of all drafters that the problem names no file for.

    A drafter whose rounds the bench's backend does not run is left out; the search says why.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes; profiles in it are not read.
        progress: told of every prompt.
        limit: use only so many prompts of the profile split.
        precision: a drafter takes no further prompts once the 90 % intervals of tokens per round
            of its candidates are within this part of their means, either way; 0 takes all prompts.
        wanted: drafters to measure; default those of the problem.
        hopeful: who of some drafters may be worth a closer look; others take no further prompts.

    Returns:
        By drafter; stored under the problem's `profiles` folder with their provenance, which
        tells the half width reached and how many prompts were left.

    Raises:
        UsageError: there are no prompts to measure on.
    """
    given = bench.problem.stated_acceptance
    if wanted is None:
        wanted = [drafter for drafter in possible_drafters(facts) if drafter not in given]
    plans = {name: profiling_plan(facts, name) for name in wanted}
    runs = bench.backend.capabilities
    wanted = [name for name, plan in plans.items() if plan is None or not runs.refusals(plan)]
    if not wanted:
        return {}
    every = bench.prompts(PROFILE)
    prompts, texts = every[:limit], text_digests(every)
    growing = {name: Growing.open(bench, facts, name, plans[name], texts) for name in wanted}
    wide = list(wanted)
    for stop in range(LEAST_PROMPTS, len(prompts) + LEAST_PROMPTS, LEAST_PROMPTS):
        outputs = continue_prompts(bench, prompts[:stop], progress)
        states: States = {}
        for name in wide:
            growing[name].grow(prompts, outputs, progress, states)
        if precision > 0.0 and stop < len(prompts):
            kept = wide if hopeful is None else hopeful([growing[n].profile([]) for n in wanted])
            wide = [n for n in wide if n in kept and growing[n].half_width(facts) > precision]
        if not wide:
            break
    return {name: growing[name].finish(facts, prompts, progress) for name in wanted}
