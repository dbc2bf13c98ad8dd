"""Chains that grow one token a pass, to a fixed length or until a rule ends them.

Who drafts does not matter to a rule: it reads the logits that a token is drafted from, and numbers.
A token that was drafted is verified in any case, so that drawn drafts keep the target's
distribution. A drafter stops after the token of which it was not sure; the target's first layers,
which run every drafted token anyway for the others to go on from, stop before it, but draft one
token at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any, ClassVar

from specplan.cost_models.acceptance.drafters import FirstLayers, Model, SkipBlocks, SmallCache
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.parts import CHUNK, SINKS, WINDOW, exit_layers
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Method, Option, OptionsT
from specplan.planner.templates.plan_text import Pass, draft_and_verify, draft_passes, uniforms
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

ChainDrafter = Model | SkipBlocks | SmallCache
"""A draft model, the target without some blocks, or either with few cached tokens."""
StoppedDrafter = FirstLayers | ChainDrafter
"""Whose drafts a rule may end."""
WHO_DRAFTS = Option("who drafts", drafts=True)
"""A draft model, or a part of a model whose acceptance is known."""


def cache_policy(drafter: SmallCache) -> str:
    """How the cache of a drafter with few cached tokens is declared."""
    policies = {"retrieved": f"retrieved(chunk={CHUNK})", "observed": f"observed(window={WINDOW})"}
    policy = policies.get(drafter.how, f"sink_recent(sink={SINKS})")
    return f"policy={policy} budget={drafter.budget}"


@dataclass(frozen=True)
class StopRule:
    """When a chain ends.

    Attributes:
        condition: a formula of `m`, what is measured, and of `operands`; where it holds the chain
            ends.
        measure: of the logits that a token is drafted from; `count` for the tokens drafted so far,
            `uniform` for a random number.
        product: `m` is the product of the measures of all tokens so far.
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

    @classmethod
    def carrying(
        cls,
        condition: str,
        numbers: Mapping[str, tuple[str, float]],
        after: str,
        *,
        before: str = "",
        **more: Any,
    ) -> StopRule:
        """Ends a chain by numbers of the request that rounds carry on.

        Args:
            condition: see the class.
            numbers: by name in formulas, the state that holds one and what it is at first.
            after: ops at the end of a round that define the next numbers: of `%k`, `%k2`.
            before: ops that define operands from the numbers.
            more: `measure` and `operands`.
        """
        loads = (f"%{name} = load @{state}" for name, (state, _) in numbers.items())
        stores = (f"store @{state} %{name}2" for name, (state, _) in numbers.items())
        states = (
            f"@{state} = value number(init={float(first)})" for state, first in numbers.values()
        )
        return cls(
            condition,
            before="\n".join((*loads, before)).rstrip(),
            after="\n".join((after, *stores)),
            states=tuple(states),
            **more,
        )

    def ops(self, logits: str) -> str:
        """Ops in the loop that define `%stop`, and the product `%r` where there is one."""
        measured, read = f"%m = measure {logits} {self.measure}", "%m"
        if self.measure == "uniform":
            measured = "%z = uniform 1 stream=stop\n%m = measure %z uniform"
        if self.measure == "count":
            measured = "%m = measure %n count"
        if self.product:
            measured, read = f'{measured}\n%r = compute "p*m" p=%p m=%m', "%r"
        return f'{measured}\n%stop = compute "{self.condition}" m={read} {self.operands}'


def drafted_chain(
    length: int,
    forward: Pass | str,
    *,
    drawn: bool,
    result: str = "%c",
    stop: StopRule | None = None,
) -> str:
    """A chain, grown one token a trip.

    Args:
        length: drafted tokens, at most where a rule ends it.
        forward: the drafting pass, over the newest node; or ops that give `%q` at the node `%f`.
        drawn: tokens are drawn from the drafter's distribution; else each is its best.
        result: name of the chain.
        stop: the rule that ends it.
    """
    logits = forward if isinstance(forward, str) else f"%q = {forward.over('%f')}"
    body = f"%f = pick %t of=newest\n{logits}\n{grown_token(drawn=drawn)}"
    if stop is None:
        return f"%t0 = root\n{_loop(length, body, {result: ('%t', '%t0', '%n')})}"
    carried, first = {result: ("%t", "%t0", "%n")}, stop.before
    if stop.product:
        carried["%y"] = ("%p", "%p0", "%r")
    start = '%p0 = compute "1.0"\n' if stop.product else ""
    loop = _loop(length, f"{body}\n{stop.ops('%q')}", carried, until="until=%stop")
    return f"{first}\n%t0 = root\n{start}{loop}"


def written_while_sure(facts: ProblemFacts, draft: str, bar: float, most: int) -> str:
    """A chain `%c` that ends before the token of which the draft model is not sure; maybe empty.

    Args:
        facts: the problem.
        draft: the model.
        bar: its highest probability below which it writes no more.
        most: tokens at most.
    """
    first, later = draft_passes(draft)
    draw, how = uniforms(facts, 1)
    return f"""%t0 = root
%q0 = {first.over("%t0")}
%m0 = measure %q0 top1
%sure = compute "m >= {bar}" m=%m0
%c, %x = repeat {most} (%t = %t0, %q = %q0) only=%sure {{
    %f = pick %t of=newest
    {draw}
    %n = grow %t at=%f logits=%q {how}
    %g = pick %n of=newest
    %s = {later.over("%g")}
    %m = measure %s top1
    %stop = compute "m < {bar}" m=%m
    yield %n, %s until=%stop
}}"""


def chain_plan(
    facts: ProblemFacts,
    method: Method[Any],
    drafter: StoppedDrafter,
    length: int,
    *,
    rule: str = "token",
    stop: StopRule | None = None,
) -> Plan:
    """A plan in which a chain is drafted, then verified.

    Args:
        facts: the problem.
        method: whose plan it is.
        drafter: who drafts; the target's first layers only where a rule ends the chain.
        length: drafted tokens, at most where a rule ends it.
        rule: acceptance rule above temperature 0.
        stop: the rule that ends the chain.
    """
    drawn, verify, policies = not facts.greedy, "", {}
    after, states = ("", ()) if stop is None else (stop.after, stop.states)
    role = drafter.name if isinstance(drafter, Model) else drafter.model
    forward, _ = draft_passes(role)
    if isinstance(drafter, SkipBlocks):
        assert role == "target", "other models run whole"
        skip = print_atom(drafter.skips.words)
        forward = Pass(role, f"cache=@kv pending=1 skip={skip} write=scratch")
    if isinstance(drafter, SmallCache) and drafter.how == "by_head":
        heads = f"budget={drafter.budget}, sink={SINKS}, retrieval={print_atom(drafter.heads)}"
        forward = Pass(role, f"cache=@kv pending=1 policy=by_head({heads}) write=scratch")
    elif isinstance(drafter, SmallCache) and role == "target":
        forward, after = (
            Pass(role, "cache=@part pending=1 write=scratch"),
            f"refresh @part\n{after}",
        )
        states = (f"@part = cache target view=@kv {cache_policy(drafter)}", *states)
    elif isinstance(drafter, SmallCache):
        policies = {role: cache_policy(drafter)}
    if isinstance(drafter, FirstLayers):
        assert stop is not None, "chains of one length share layers instead"
        track, end = f"@after_{drafter.layers}", facts.target.num_layers
        verify = f"layers=[{drafter.layers}:{end}] features={track}"
        states = (*states, f"{track} = track target layer={drafter.layers}")
        after = f"commit {track} %e\n{after}"
        lower = f"layers=[0:{drafter.layers}] keep={track}"
        drafted = _by_layers(lower, length, stop, drawn=drawn)
    else:
        drafted = drafted_chain(length, forward, drawn=drawn, stop=stop)
    return draft_and_verify(
        facts,
        method,
        drafted,
        length,
        models=() if role == "target" else (role,),
        rule=rule,
        verify=verify,
        after=after,
        states=states,
        policies=policies,
    )


class StoppedChains(ProfiledByRunning[OptionsT]):
    """A method whose rule ends chains of whoever drafts: models, and parts of models.

    Its options begin with the drafter. Parts are the target's first layers; the target without some
    blocks, or a model with few cached tokens, where the acceptance of that is known.

    Attributes:
        shapes: the further options, with draft models.
        part_shapes: with parts of models.
    """

    part_shapes: ClassVar[Sequence[tuple[Any, ...]]]

    def settings_of(self, drafter: StoppedDrafter) -> Iterator[OptionsT]:
        """All settings with one drafter, simpler ones first."""
        shapes = self.shapes if isinstance(drafter, Model) else self.part_shapes
        return (self.setting(drafter, *shape) for shape in shapes)

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
            if isinstance(drafter, SmallCache) or (
                isinstance(drafter, SkipBlocks) and drafter.model == "target"
            ):
                yield from self.settings_of(drafter)


def _by_layers(attributes: str, length: int, stop: StopRule, *, drawn: bool) -> str:
    """The logits of a drafted token say whether the next one is drafted."""
    first, later = (Pass("target", f"cache=@kv {x}{attributes}") for x in ("pending=1 ", ""))
    carried = {"%c": ("%t", "%t0", "%n"), "%x": ("%q", "%q0", "%s")}
    start = ""
    if stop.product:
        carried["%y"], start = ("%p", "%p0", "%r"), f"\n%p0 = measure %q0 {stop.measure}"
    body = f"""%f = pick %t of=newest
{grown_token(drawn=drawn)}
%g = pick %n of=newest
%s = {later.over("%g")}
{stop.ops("%s")}"""
    return f"""{stop.before}
%t0 = root
%q0 = {first.over("%t0")}{start}
{_loop(length, body, carried, until="until=%stop")}"""


def grown_token(logits: str = "%q", *, drawn: bool) -> str:
    """Text that gives the node `%f` one child, in `%n`, by the logits of this name."""
    if not drawn:
        return f"%n = grow %t at=%f logits={logits}"
    return f"%u = uniform 1 stream=draft\n%n = grow %t at=%f logits={logits} how=draw by=%u"


def _loop(length: int, body: str, carried: dict[str, tuple[str, str, str]], until: str = "") -> str:
    """A loop: by result, the value that it carries, where that begins, and what a trip yields."""
    values, starts, yielded = zip(*carried.values(), strict=True)
    given = ", ".join(f"{value} = {start}" for value, start in zip(values, starts, strict=True))
    head = f"{', '.join(carried)} = repeat {length} ({given}) {{"
    return f"{head}\n{indent(body, '    ')}\n    yield {', '.join(yielded)} {until}\n}}"
