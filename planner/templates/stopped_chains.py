"""Chains that end where the drafter is no longer sure of itself: a stop rule, and its ops.

Who drafts does not matter to a rule: it reads the row that a token is drafted from, and numbers. A
token that was drafted is kept and verified, so that drawn drafts keep the target's law. A drafter
stops after the token of which it was not sure; the target's first layers, which run every
drafted token anyway for the others to go on from, stop before it, but draft one token at least.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import ClassVar, TypeVar

from specplan.cost_models.acceptance.drafters import FirstLayers, Model, SkipBlocks, SmallCache
from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import exit_layers
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.chains import ChainDrafter, OfChain
from specplan.planner.templates.plan_text import judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

OptionsT = TypeVar("OptionsT", bound=Options)
Stopped = FirstLayers | OfChain
"""Whose drafts a rule may end."""


@dataclass(frozen=True)
class StopRule:
    """When a chain ends.

    Attributes:
        condition: a formula of `m`, what is measured, and of `operands`; where it holds the chain
            ends.
        measure: of the row that a token is drafted from; `count` for the tokens drafted so far,
            `uniform` for a number by chance.
        product: `m` is the product of what was measured of all tokens so far.
        operands: further ones of the formula, `b=%b`.
        before: ops that define them.
        after: ops at the end of the round.
        states: declarations that these need.
    """

    condition: str
    measure: str = "top1"
    product: bool = False
    operands: str = ""
    before: str = ""
    after: str = ""
    states: tuple[str, ...] = ()

    def ops(self, rows: str) -> str:
        """What stands in the loop: `%stop`, and with a product `%r`, from rows or the chain."""
        measured, read = f"%m = measure {rows} {self.measure}", "%m"
        if self.measure == "uniform":
            measured = "%z = uniform 1 stream=stop\n%m = measure %z uniform"
        if self.measure == "count":
            measured = "%m = measure %n count"
        if self.product:
            measured, read = f'{measured}\n%r = compute "p*m" p=%p m=%m', "%r"
        given = " ".join(word for word in (f"m={read}", self.operands) if word)
        return f'{measured}\n%stop = compute "{self.condition}" {given}'


class StoppedChains(ProfiledByRunning[OptionsT]):
    """A method whose rule stops whoever drafts: models, and parts of models.

    Parts are the target's first layers; the target without some blocks, or a model with few cached
    tokens, where the acceptance of that is known.
    """

    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True

    @abstractmethod
    def settings_of(self, drafter: Stopped) -> Iterator[OptionsT]:
        """All settings with one drafter, simpler ones first."""

    def settings(self, models: Sequence[str]) -> Iterator[OptionsT]:
        """Those of draft models."""
        for model in models:
            yield from self.settings_of(Model(model))

    def run_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """Those of draft models and of the target's first layers."""
        yield from super().run_settings(facts)
        for layers in exit_layers(facts.target):
            yield from self.settings_of(FirstLayers("target", layers))

    def later_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """Also those of other parts whose acceptance is known by now."""
        yield from self.run_settings(facts)
        for drafter in facts.profiles:
            of_target = isinstance(drafter, SkipBlocks) and drafter.model == "target"
            if of_target or isinstance(drafter, SmallCache):
                assert isinstance(drafter, SkipBlocks | SmallCache)
                yield from self.settings_of(drafter)


def stopped_plan(
    facts: ProblemFacts, name: str, drafter: Stopped, length: int, stop: StopRule
) -> Plan:
    """A plan whose chain ends by a rule.

    Args:
        facts: the problem.
        name: the plan's name.
        drafter: a draft model; the target's first layers, or without some blocks; or either model
            with few cached tokens.
        length: drafted tokens at most.
        stop: when it ends earlier.
    """
    if isinstance(drafter, FirstLayers):
        return _plan_of_layers(facts, name, drafter.layers, length, stop)
    said = ChainDrafter.of(drafter)
    drafted = _by_rows(said.forward, length, stop, drawn=not facts.greedy)
    drafted = "\n".join(part for part in (stop.before, drafted) if part)
    return said.plan(facts, name, drafted, length, after=stop.after, states=stop.states)


def _plan_of_layers(
    facts: ProblemFacts, name: str, layers: int, length: int, stop: StopRule
) -> Plan:
    """The target's first layers draft, and the others go on from what they computed."""
    track = f"@after_{layers}"
    upper = f"layers=[{layers}:{facts.target.num_layers}] features={track}"
    lower = f"target {{}} cache=@kv {{}}layers=[0:{layers}] keep={track}"
    body = f"""{_by_layers(lower, length, stop, drawn=not facts.greedy)}
{judge("%c", length, rule=None if facts.greedy else "token", forward=upper)}
commit {track} %e"""
    states = (*stop.states, f"{track} = track target layer={layers}")
    body = "\n".join(part for part in (stop.before, body, stop.after) if part)
    return single_round_plan(facts, name, (), body, states=states)


def _by_rows(forward: str, length: int, stop: StopRule, *, drawn: bool) -> str:
    """A row drafts a token and says whether it was the last one."""
    first = '%p0 = compute "1.0"\n' if stop.product else ""
    body = f"""%f = pick %t of=newest
%q = forward {forward}
{_grow("%q", drawn=drawn)}
{stop.ops("%q")}"""
    return f"%t0 = root\n{first}{_loop(length, body, stop.product)}"


def _by_layers(lower: str, length: int, stop: StopRule, *, drawn: bool) -> str:
    """The row of a drafted token says whether the next one is drafted."""
    first = f"\n%p0 = measure %q0 {stop.measure}" if stop.product else ""
    body = f"""%f = pick %t of=newest
{_grow("%q", drawn=drawn)}
%g = pick %n of=newest
%s = forward {lower.format("%g", "")}
{stop.ops("%s")}"""
    return f"""%t0 = root
%q0 = forward {lower.format("%t0", "pending=1 ")}{first}
{_loop(length, body, stop.product, rows=True)}"""


def _grow(rows: str, *, drawn: bool) -> str:
    if not drawn:
        return f"%n = grow %t at=%f logits={rows}"
    return f"%u = uniform 1 stream=draft\n%n = grow %t at=%f logits={rows} how=draw by=%u"


def _loop(length: int, body: str, product: bool, *, rows: bool = False) -> str:
    """The chain `%c`; carries rows to the next trip, and a product."""
    results, carried, yields = ["%c"], ["%t = %t0"], ["%n"]
    if rows:
        results, carried, yields = [*results, "%x"], [*carried, "%q = %q0"], [*yields, "%s"]
    if product:
        results, carried, yields = [*results, "%y"], [*carried, "%p = %p0"], [*yields, "%r"]
    head = f"{', '.join(results)} = repeat {length} ({', '.join(carried)}) {{"
    return f"{head}\n{indent(body, '    ')}\n    yield {', '.join(yields)} until=%stop\n}}"
