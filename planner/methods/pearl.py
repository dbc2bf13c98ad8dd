"""A draft model continues drafting while the target verifies the drafts before.

PEARL (Liu et al. 2024, arXiv 2408.11850): draft and verification run side by side. Each round the
target judges the rest of the last drafts and the first token after it, while the draft model writes
as many tokens again at the end. As long as all is accepted, whole windows are judged (the paper's
post-verify); a rejection drops all drafts behind it, and of the next draft the first token alone is
judged while the rest is drafted (its pre-verify). Tokens are judged one by one against the
distribution that they were drawn from, which keeps the target's distribution at every temperature;
the end of a window without a rejection brings no token of the target's own.

A round takes as long as the slower of the two where the device has room for both, and otherwise
the sum (`lane_overlap` of the device).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.devices.device import UnpricedError
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import cache_of, single_round_plan, uniforms
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LENGTHS = (2, 3, 4, 6, 8)
LONGEST = 16


@dataclass(frozen=True)
class PearlOptions(Options):
    """Who drafts, and how much at a time."""

    reads = "windows of {length} by {draft}"

    draft: DraftName
    length: Annotated[int, Option("tokens that are drafted while as many are verified", LENGTHS)]

    @property
    def nodes(self) -> int:
        """Drafted tokens that a round judges, at most."""
        return self.length


class Pearl(ProfiledByRunning[PearlOptions]):
    """Pays where draft model and target do not slow each other, and most drafts are accepted."""

    summary = "a draft model goes on drafting while the target verifies"
    paper = "Liu et al. 2024, arXiv 2408.11850"
    differs = (
        "The window's length is fixed for a plan, the ratio of the models' speeds among those that "
        "are compared; the two models overlap on processors with free cores only, elsewhere they "
        "take turns."
    )
    memory = (
        "a window of drafts; at a temperature above 0 with their laws, 4 bytes per token, request "
        "and entry of the vocabulary"
    )
    family = "windows"

    def run_settings(self, facts: ProblemFacts) -> Iterator[PearlOptions]:
        """Some lengths, and the one that a draft model writes while the target runs once."""
        for draft in models_alone(facts.shapes):
            lengths = {*LENGTHS, matched_length(facts, draft)}
            yield from (PearlOptions(draft, length) for length in sorted(lengths))

    def plan(self, facts: ProblemFacts, options: PearlOptions) -> Plan:
        """Verify the window and draft on from its end; judge both, keep the rest."""
        draft, drafted, rest = options.draft, options.length, options.length - 1
        cache, laws = cache_of(draft), "" if facts.greedy else ", how=draw"
        first, how = uniforms(facts, 1, "%u0")
        later, more = uniforms(facts, 1, offset=1)
        count = 2 * drafted  # drafted tokens, and a bonus
        accept, rule = uniforms(facts, count, "%v", stream="accept", use="rule=token")
        body = f"""%w = load @window
%l = segment lane=verify {{
  %o = forward target %w cache=@kv pending=1
  yield %o
}}
%c = segment lane=draft {{
  %q0 = forward {draft} %w cache={cache} pending=1
  %tip = pick %w of=leaves
  {first}
  %t0 = grow %w at=%tip logits=%q0 {how}
  %d = repeat {rest} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward {draft} %f cache={cache}
    {later}
    %n = grow %t at=%f logits=%q {more}
    yield %n
  }}
  yield %d
}}
{accept}
%a = accept %c target=%l {rule}
%e = emit %a
%r = reroot %c %e nodes={rest}
commit @kv %e
commit {cache} %e
store @window %r"""
        window = f"@window = value tree(nodes={rest}, depth={rest}{laws})"
        return single_round_plan(facts, self, (draft,), body, states=(window,))


def matched_length(facts: ProblemFacts, draft: str) -> int:
    """The paper's window: passes of the draft model in the time of one of the target.

    Of the loads' mean times, between the shortest and the longest window that are worth trying.
    """
    try:
        target, drafts = (facts.pass_seconds(role, 1).mean() for role in ("target", draft))
    except UnpricedError:
        return LENGTHS[0]
    return min(max(round(float(target / drafts)), LENGTHS[0]), LONGEST)


METHOD = Pearl()
