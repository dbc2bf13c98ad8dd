"""Drafts of several drafters: chains joined at the root, and a model in turns with a source.

Turns are those of staged speculation (arXiv 2308.04623): the source proposes below the tip, the
draft model judges that in one pass and adds a token of its own, and what it accepts is its draft.
Prices assume that a source answers in the middle of a round as it would at the start of one there:
the text itself does; a declared source has not learned the draft's own tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from specplan.cost_models.acceptance.drafters import TEXT, Drafter, Interleaved
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment, InterleavedTrace
from specplan.ir.values import print_atom
from specplan.planner.drafters.parts import models_alone
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Options, Refusal
from specplan.planner.templates.per_drafter import PerDraftModel
from specplan.planner.templates.plan_text import cache_of


@dataclass(frozen=True)
class TurnsOptions(Options):
    """A draft model that drafts in turns with a source."""

    draft: DraftName

    @property
    @abstractmethod
    def segments(self) -> tuple[DraftSegment, ...]:
        """Which of the two drafts which stretch of the chain."""

    @property
    def nodes(self) -> int:
        """Drafted tokens at most."""
        return sum(one.most for one in self.segments)


TurnsT = TypeVar("TurnsT", bound=TurnsOptions)


class InTurns(PerDraftModel[TurnsT]):
    """A method in which a draft model and a source draft in turns.

    Attributes:
        partner: the source, as acceptance profiles call it.
    """

    partner: ClassVar[str]

    @abstractmethod
    def settings(self, draft: str) -> Mapping[str, Iterable[TurnsT]]:
        """All settings of a draft model, by family."""

    def families(self, facts: ProblemFacts, draft: str) -> Iterator[Family[TurnsT] | Refusal]:
        """The settings that the profile of the turns prices."""
        turns = facts.evidence(Interleaved(draft, self.partner), InterleavedTrace, "turns")
        for name, settings in self.settings(draft).items():
            if isinstance(turns, str):
                yield Refusal(name, turns)
            else:
                priced = [one for one in settings if turns.problem_of(one.segments) is None]
                yield Family.of(name, priced)

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """Every draft model that runs alone, in turns with the source."""
        return tuple(Interleaved(role, self.partner) for role in models_alone(facts.shapes))

    def drafter(self, facts: ProblemFacts, options: TurnsT) -> Interleaved:
        """The draft model in turns with the source."""
        return Interleaved(options.draft, self.partner)


def drafted_in_turns(
    draft: str,
    lookup: str,
    passes: int,
    length: int,
    *,
    drawn: bool,
    result: str = "%c",
    learn: str = "",
    pending: int = 2,
) -> str:
    """A chain of what the draft model accepts of a source's proposals, and of its own tokens.

    Args:
        draft: the model.
        lookup: the source and the suffixes that it looks up, `@text match=[1, 3]`.
        passes: of the model.
        length: tokens that the source proposes at most, each time.
        drawn: tokens are drawn from the model's distribution; else each is its best.
        result: name of the chain.
        learn: an op that teaches the source the text.
        pending: text tokens that the model's first pass may also run.
    """
    state, _, match = lookup.partition(" ")
    judging = "%i = accept %g target=%q at=%tip"
    if drawn:
        judging = f"%w = uniform {length + 1} stream=draft\n    {judging} rule=recursive by=%w"
    return f"""%t0 = root
{learn}
{result} = repeat {passes} (%t = %t0) {{
    %tip = pick %t of=leaves
    %g = lookup {state} %t at=%tip {match} length={length}
    %n = pick %g of=from at=%tip
    %q = forward {draft} %n cache={cache_of(draft)} pending={pending}
    {judging}
    %m = adopt %g %i logits=%q
    yield %m
}}"""


def joined_chains(
    drafters: Sequence[str],
    length: int,
    *,
    drawn: bool,
    result: str = "%c",
    until: str = "",
    join: str = "",
) -> str:
    """A tree of one chain per drafter, in which equal siblings and their children are merged.

    Any of the chains may be the accepted one, so that a model may lack all of it but the root.

    Args:
        drafters: draft models, and the text, which proposes what followed its end before.
        length: tokens of each chain, of the text's at most.
        drawn: tokens of models are drawn from their distributions, each model from a stream of its
            own; else they are the best ones.
        result: name of the tree; `%d0`, `%d1`, ... are the chains.
        until: number of tokens at which a model's chain ends, `%k`; empty for `length`.
        join: further attributes of the op that joins them.
    """
    trees = " ".join(f"%d{index}" for index in range(len(drafters)))
    chains = _chains(drafters, length, drawn, until)
    return "\n".join([*chains, f"{result} = graft {trees} same=merge {join}"])


def models_of(drafters: Sequence[str]) -> tuple[str, ...]:
    """The models among drafters."""
    return tuple(name for name in drafters if name != TEXT.name)


def _chains(drafters: Sequence[str], length: int, drawn: bool, until: str) -> Iterator[str]:
    for i, name in enumerate(drafters):
        yield f"%r{i} = root"
        if name == TEXT.name:
            match = print_atom(LOOKUP_MATCH)
            yield f"%d{i} = lookup @text %r{i} at=%r{i} match={match} length={length}"
            continue
        draw = f"%u{i} = uniform 1 stream=draft_{i}" if drawn else ""
        how = f"how=draw by=%u{i}" if drawn else ""
        stop, ends = "", ""
        if until:
            stop = f'%m{i} = measure %n{i} count\n%stop{i} = compute "m >= k" m=%m{i} k={until}'
            ends = f" until=%stop{i}"
        yield f"""%d{i} = repeat {length} (%t{i} = %r{i}) {{
    %f{i} = pick %t{i} of=newest
    %q{i} = forward {name} %f{i} cache={cache_of(name)} pending={length + 1}
    {draw}
    %n{i} = grow %t{i} at=%f{i} logits=%q{i} {how}
    {stop}
    yield %n{i}{ends}
}}"""
