"""Plans whose only purpose is to be timed: every width of every op that a candidate may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specplan.cost_models.acceptance.draft_sources import DraftSource
from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.cost_models.rounds.demands import OpDemand, round_demands
from specplan.ir.blocks import Skips
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import print_atom
from specplan.planner import (
    ProblemFacts,
    cache_policy,
    later_drafters,
    possible_drafters,
    profiling_plan,
)

CHAINS = (1, 3, 7, 16)
BUSHES = (2, 4, 8, 16, 32)
LOOKUPS = (2, 5, 10)
EXIT_CHAINS = (1, 8)
POOLS = ((2, 2, 4), (4, 6, 48))
"""Beam, layers and verified nodes: the smallest and the largest."""
STAGES = ((1, 1), (3, 5))
"""Passes of the draft model, and tokens of the text that it judges in each."""
SKIP_CHAIN = 1
SOURCE_WIDTHS = (2, 16)


@dataclass(frozen=True)
class Probe:
    """A plan to time."""

    name: str
    plan: Plan


def probes(drafts: Sequence[str], greedy: bool, vocabulary: int) -> Iterator[Probe]:
    """Autoregressive decoding, lookups, and per draft model chains, two-level bushes and beams.

    A chain of n times drafting one node n times and verifying n + 1 tokens; a bush of w times
    drafting at w nodes at once and verifying 2 w + 1 tokens.

    Two trees grown by a beam show what their choices take: the smallest and the largest; and two
    chains whose draft model judges what the text proposes, a short and a long one.
    """
    yield from chain_probes(drafts, greedy)
    for draft in drafts:
        for width in (width for width in BUSHES if width <= vocabulary):
            yield Probe(f"bush {width} by {draft}", _bush(draft, width, greedy))
        for beam, layers, nodes in (pool for pool in POOLS if pool[0] <= vocabulary):
            name = f"beam {beam} of {layers} layers by {draft}"
            yield Probe(name, _pool(draft, beam, layers, nodes, greedy))
        for passes, judged in STAGES:
            name = f"{passes} passes over {judged} by {draft}"
            yield Probe(name, _stages(draft, passes, judged, greedy))


def chain_probes(drafts: Sequence[str], greedy: bool) -> Iterator[Probe]:
    """Those of `probes` without trees."""
    yield Probe("autoregressive", plain_plan(greedy))
    for length in LOOKUPS:
        yield Probe(f"lookup {length}", _lookup(length, greedy))
    for draft in drafts:
        for length in CHAINS:
            yield Probe(f"chain {length} by {draft}", _chain(draft, length, greedy))


def exit_probes(exits: Sequence[int], layers: int, greedy: bool) -> Iterator[Probe]:
    """Chains drafted by the target's first layers and verified by the others.

    Args:
        exits: layers after which is drafted.
        layers: of the target.
        greedy: temperature 0.
    """
    for layer in exits:
        for length in EXIT_CHAINS:
            plan = _exit_chain(layer, layers, length, greedy)
            yield Probe(f"chain {length} after layer {layer}", plan)


def skip_probes(layers: int, greedy: bool) -> Iterator[Probe]:
    """Chains drafted without the attentions, the MLPs, or both, of all layers but the ends.

    Passes without fewer blocks lie between these and the whole one.

    Args:
        layers: of the target; none are made for fewer than three.
        greedy: temperature 0.
    """
    inner = range(1, layers - 1)
    for skips in (Skips.of(inner), Skips.of((), inner), Skips.of(inner, inner)) if inner else ():
        draft = f"target %f cache=@kv pending=1 skip={print_atom(skips.words)} write=scratch"
        body = _drafted(draft, SKIP_CHAIN, greedy)
        tail = _tail("%c", SKIP_CHAIN, (), None if greedy else "token")
        plan = parse_plan(_head("probe", ()) + body + tail)
        yield Probe(f"chain {SKIP_CHAIN} without {len(skips)} blocks", plan)


def source_probes(
    sources: Iterable[DraftSource], path: Path | None, greedy: bool
) -> Iterator[Probe]:
    """Rounds that draft few and many tokens from each source, and teach it.

    Args:
        sources: that the problem drafts from.
        path: of a stored one.
        greedy: temperature 0.
    """
    for source in sources:
        for width in SOURCE_WIDTHS:
            plan = _from_source(
                source, path if source.scope == "read_only" else None, width, greedy
            )
            yield Probe(f"lookup {width} from {source.word}", plan)


def budget_probes(parts: Sequence[SmallCache], greedy: bool) -> Iterator[Probe]:
    """Chains that the target drafts with the least and the most of its cache.

    Args:
        parts: who keeps how many tokens, by one policy, in rising order.
        greedy: temperature 0.
    """
    for part in dict.fromkeys((*parts[:1], *parts[-1:])):
        view = f"state @part = cache target view=@kv {cache_policy(part)}\nround "
        body = _drafted("target %f cache=@part pending=1 write=scratch", SKIP_CHAIN, greedy)
        tail = _tail("%c", SKIP_CHAIN, (), None if greedy else "token")
        tail = tail.replace("}\n", "  refresh @part\n}\n")
        plan = parse_plan(_head("probe", ()).replace("round ", view) + body + tail)
        yield Probe(f"chain {SKIP_CHAIN} with {part.words}", plan)


def rehearsal_probes(facts: ProblemFacts) -> Iterator[Probe]:
    """Of the plans whose own rounds are run, two of each, and those that run what these do not."""
    kinds: dict[str, list[Probe]] = {}
    every = (*possible_drafters(facts), *later_drafters(facts))
    for drafter in dict.fromkeys(every):
        plan = profiling_plan(facts, drafter)
        if plan is not None:
            kinds.setdefault(plan.name, []).append(Probe(str(drafter), plan))
    for found in kinds.values():
        chosen = list(dict.fromkeys((found[0], found[-1])))
        known = set().union(*(_kinds_of_steps(probe.plan) for probe in chosen))
        for probe in found:
            wanted = _kinds_of_steps(probe.plan)
            if not wanted <= known:
                chosen.append(probe)
                known |= wanted
        yield from chosen


def _kinds_of_steps(plan: Plan) -> set[object]:
    """What a plan's rounds run, widths left out."""
    return {
        step.name
        if isinstance(step, OpDemand)
        else (step.model, step.spans, step.skips, step.rows > 0)
        for item in plan.rounds
        for step in round_demands(plan, item).steps
    }


def probe_of_width(role: str, width: int, greedy: bool) -> Probe:
    """A probe in which a model runs over `width` > 1 query tokens."""
    if role == "target":
        return Probe(f"lookup {width - 1}", _lookup(width - 1, greedy))
    return Probe(f"bush {width} by {role}", _bush(role, width, greedy))


def plain_plan(greedy: bool) -> Plan:
    """Autoregressive decoding at temperature 0, or at any."""
    tail = _tail("%t0", 0, (), None if greedy else "recursive")
    return parse_plan(_head("autoregressive", ()) + tail)


def _head(name: str, drafts: Sequence[str]) -> str:
    models = "".join(f"model {name}\n" for name in ("target", *drafts))
    caches = "".join(f"state @{draft}_kv = cache {draft}\n" for draft in drafts)
    return f"plan {name}\n{models}state @kv = cache target\n{caches}round decode {{\n  %t0 = root\n"


def _tail(tree: str, nodes: int, drafts: Sequence[str], rule: str | None, forward: str = "") -> str:
    judged = f"  %a = accept {tree} target=%l\n"
    if rule is not None:
        judged = (
            f"  %v = uniform {nodes + 1} stream=accept\n"
            f"  %a = accept {tree} target=%l rule={rule} by=%v\n"
        )
    commits = "".join(f"  commit @{draft}_kv %e\n" for draft in drafts)
    verify = f"  %l = forward target {tree} cache=@kv pending=1{forward}\n"
    return f"{verify}{judged}  %e = emit %a\n  commit @kv %e\n{commits}}}\n"


def _lookup(length: int, greedy: bool) -> Plan:
    found = f"  %c = lookup @text %t0 at=%t0 match=[1, 3] length={length}\n"
    tail = _tail("%c", length, (), None if greedy else "recursive")
    return parse_plan(_head("probe", ()) + found + tail)


def _from_source(source: DraftSource, path: Path | None, width: int, greedy: bool) -> Plan:
    wanted, levels = f"length={width}", 2
    if source.evidence == "pools":
        children = max(source.occurrences or width, width)
        wanted = f"children={children} length={levels} nodes={width}"
    elif source.evidence == "ranks":
        wanted = f"children={width // levels} length={levels}"
    learn = f"  update @drafts %t0 last={source.last}\n" if source.last else ""
    match = print_atom(source.match)
    found = f"{learn}  %c = lookup @drafts %t0 at=%t0 match={match} {wanted}\n"
    tail = _tail("%c", width, (), None if greedy else "recursive")
    if source.evidence == "ranks":
        tail = tail.replace("}\n", "  update @drafts %c logits=%l\n}\n")
    state = f"state {source.declaration('drafts', path)}\nround "
    head = _head("probe", ()).replace("round ", state)
    shared = "assume reproducible=false\n" if source.shares and not greedy else ""
    return parse_plan(head.replace("state @kv", f"{shared}state @kv") + found + tail)


def _drafted(forward: str, length: int, greedy: bool) -> str:
    """A chain `%c` of which each token is drafted by a forward on `%f`."""
    draw = "" if greedy else "    %u = uniform 1 stream=draft\n"
    how = "" if greedy else " how=draw by=%u"
    return (
        f"  %c = repeat {length} (%t = %t0) {{\n    %f = pick %t of=newest\n"
        f"    %q = forward {forward}\n{draw}"
        f"    %n = grow %t at=%f logits=%q{how}\n    yield %n\n  }}\n"
    )


def _chain(draft: str, length: int, greedy: bool) -> Plan:
    body = _drafted(f"{draft} %f cache=@{draft}_kv pending=2", length, greedy)
    tail = _tail("%c", length, (draft,), None if greedy else "token")
    return parse_plan(_head("probe", (draft,)) + body + tail)


def _exit_chain(layer: int, layers: int, length: int, greedy: bool) -> Plan:
    lower = f"cache=@kv pending=1 layers=[0:{layer}] keep=@low"
    head = _head("probe", ()).replace("round ", f"state @low = track target layer={layer}\nround ")
    body = _drafted(f"target %f {lower}", length, greedy) + (
        f"  %last = pick %c of=newest\n  forward target %last {lower} gives=[]\n"
    )
    upper = f" layers=[{layer}:{layers}] features=@low"
    tail = _tail("%c", length, (), None if greedy else "token", upper)
    return parse_plan(head + body + tail.replace("}\n", "  commit @low %e\n}\n"))


def _pool(draft: str, beam: int, layers: int, nodes: int, greedy: bool) -> Plan:
    cache = f"cache=@{draft}_kv"
    body = (
        f"  %q0 = forward {draft} %t0 {cache} pending=2\n"
        f"  %t1 = grow %t0 at=%t0 logits=%q0 children={beam}\n"
        f"  %pool = repeat {layers - 1} (%t = %t1) {{\n"
        f"    %f = pick %t of=newest best={beam}\n    %q = forward {draft} %f {cache}\n"
        f"    %n = grow %t at=%f logits=%q children={beam}\n    yield %n\n  }}\n"
        f"  %b = pick %pool of=all best={nodes}\n  %c = prune %pool to=%b\n"
    )
    tail = _tail("%c", nodes, (draft,), None if greedy else "recursive")
    return parse_plan(_head("probe", (draft,)) + body + tail)


def _stages(draft: str, passes: int, judged: int, greedy: bool) -> Plan:
    accept = "%i = accept %g target=%q at=%tip"
    if not greedy:
        accept = f"%w = uniform {judged + 1} stream=draft\n    {accept} rule=recursive by=%w"
    body = (
        f"  %c = repeat {passes} (%t = %t0) {{\n    %tip = pick %t of=leaves\n"
        f"    %g = lookup @text %t at=%tip match=[1, 3] length={judged}\n"
        f"    %n = pick %g of=from at=%tip\n"
        f"    %q = forward {draft} %n cache=@{draft}_kv pending=2\n    {accept}\n"
        f"    %m = adopt %g %i logits=%q\n    yield %m\n  }}\n"
    )
    tail = _tail("%c", passes * (judged + 1), (draft,), None if greedy else "token")
    return parse_plan(_head("probe", (draft,)) + body + tail)


def _bush(draft: str, width: int, greedy: bool) -> Plan:
    def grow(name: str, tree: str, at: str, level: int, children: int) -> str:
        draw, how = "", ""
        if not greedy:
            draw = f"  %u{level} = uniform {width} stream=draft offset={level * width}\n"
            how = f" how=draw_distinct by=%u{level}"
        return f"{draw}  {name} = grow {tree} at={at} logits=%q{level} children={children}{how}\n"

    body = (
        f"  %q0 = forward {draft} %t0 cache=@{draft}_kv pending=2\n"
        + grow("%t1", "%t0", "%t0", 0, width)
        + f"  %f1 = pick %t1 of=newest\n  %q1 = forward {draft} %f1 cache=@{draft}_kv\n"
        + grow("%c", "%t1", "%f1", 1, 1)
    )
    tail = _tail("%c", 2 * width, (draft,), None if greedy else "recursive")
    return parse_plan(_head("probe", (draft,)) + body + tail)
