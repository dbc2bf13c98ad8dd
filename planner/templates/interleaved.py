"""Chains that a draft model and a source draft in turns: what their methods share.

Stages are those of staged speculation (arXiv 2308.04623): the source proposes below the tip, the
draft model judges that in one pass and adds a token of its own, and what it keeps is its draft.
Prices take for granted that a source answers in the middle of a round as it would at the start of
one there: the text itself does, and what it was taught lacks the draft's own tokens.
"""

from __future__ import annotations

from specplan.cost_models.acceptance.drafters import Interleaved
from specplan.cost_models.acceptance.evidence.interleaved import InterleavedTrace
from specplan.planner.drafters.parts import models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.templates.plan_text import cache_of


def interleaved_drafters(facts: ProblemFacts, source: str) -> tuple[Interleaved, ...]:
    """Every draft model that runs alone, in turns with a source."""
    return tuple(Interleaved(role, source) for role in models_alone(facts.shapes))


def evidence_of_turns(facts: ProblemFacts, draft: str, source: str) -> InterleavedTrace | str:
    """What is known of a draft model and a source in turns, or why nothing is."""
    drafter = Interleaved(draft, source)
    profile = facts.profiles.get(drafter)
    if profile is None:
        return facts.missing_profile(drafter)
    if not isinstance(profile.evidence, InterleavedTrace):
        return facts.other_evidence(drafter, "turns")
    return profile.evidence


def drafted_in_stages(
    draft: str,
    source: str,
    match: str,
    stages: int,
    length: int,
    *,
    result: str,
    drawn: bool,
    learn: str = "",
    pending: int = 2,
) -> str:
    """A chain, grown by what the draft model keeps of a source's proposals below its tip.

    Args:
        draft: the model.
        source: the state that proposes, `@text`.
        match: shortest and longest suffix that is looked up, `[1, 3]`.
        stages: passes of the model.
        length: tokens that the source proposes at most, each time.
        result: name of the chain.
        drawn: tokens are drawn from the model's law; else each is its best.
        learn: an op that teaches the source the text.
        pending: text tokens that the model may catch up.
    """
    judging = "%i = accept %g target=%q at=%tip"
    if drawn:
        judging = f"%w = uniform {length + 1} stream=draft\n    {judging} rule=recursive by=%w"
    learn = f"\n{learn}" if learn else ""
    return f"""%t0 = root{learn}
%{result} = repeat {stages} (%t = %t0) {{
    %tip = pick %t of=leaves
    %g = lookup {source} %t at=%tip match={match} length={length}
    %n = pick %g of=from at=%tip
    %q = forward {draft} %n cache={cache_of(draft)} pending={pending}
    {judging}
    %m = adopt %g %i logits=%q
    yield %m
}}"""
