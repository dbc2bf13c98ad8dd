"""Plans whose only purpose is to be timed: every width of every op that a candidate may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.draft_sources import DraftSource
from specplan.cost_models.acceptance.drafters import SmallCache
from specplan.ir.blocks import Skips
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import print_atom
from specplan.planner import (
    cache_policy,
    copies_by_match,
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

    A chain of n drafts one node n times and verifies n + 1 tokens; a bush of w drafts at w nodes
    at once and verifies 2 w + 1 tokens. The smallest and the largest beam give the time of their
    choices; a short and a long chain give that of a draft model that judges lookups.
    """
    yield from chain_probes(drafts, greedy)
    for draft in drafts:
        for width in (width for width in BUSHES if width <= vocabulary):
            yield probe_of_width(draft, width, greedy)
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
    yield Probe("lookups by match", _by_match(greedy))
    for draft in drafts:
        for length in CHAINS:
            yield Probe(f"chain {length} by {draft}", chain_plan(length, greedy, draft))


def exit_probes(exits: Sequence[int], layers: int, greedy: bool) -> Iterator[Probe]:
    """Chains drafted by the target's first layers and verified by the others.

    Args:
        exits: layers after which the target drafts.
        layers: of the target.
        greedy: temperature 0.
    """
    for layer in exits:
        for length in EXIT_CHAINS:
            lower = f"cache=@kv pending=1 layers=[0:{layer}] keep=@low"
            plan = _chain(
                f"target %f {lower}",
                length,
                greedy,
                states=f"state @low = track target layer={layer}\n",
                after=f"  %last = pick %c of=newest\n  forward target %last {lower} gives=[]\n",
                verify=f" layers=[{layer}:{layers}] features=@low",
                end="  commit @low %e\n",
            )
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
        plan = _chain(draft, SKIP_CHAIN, greedy)
        yield Probe(f"chain {SKIP_CHAIN} without {len(skips)} blocks", plan)


def source_probes(
    sources: Iterable[DraftSource], path: Path | None, greedy: bool
) -> Iterator[Probe]:
    """Rounds that draft few and many tokens from each source, and teach it.

    Args:
        sources: those of the problem.
        path: folder of a stored one.
        greedy: temperature 0.
    """
    for source in sources:
        for width in SOURCE_WIDTHS:
            plan = _from_source(source, path, width, greedy)
            yield Probe(f"lookup {width} from {source.word}", plan)


def budget_probes(parts: Sequence[SmallCache], greedy: bool) -> Iterator[Probe]:
    """Chains that the target drafts with the least and the most of its cache.

    Args:
        parts: drafters with small caches of one policy, by rising budget.
        greedy: temperature 0.
    """
    for part in dict.fromkeys((*parts[:1], *parts[-1:])):
        plan = _chain(
            "target %f cache=@part pending=1 write=scratch",
            SKIP_CHAIN,
            greedy,
            states=f"state @part = cache target view=@kv {cache_policy(part)}\n",
            end="  refresh @part\n",
        )
        yield Probe(f"chain {SKIP_CHAIN} with {part.words}", plan)


def probe_of_width(role: str, width: int, greedy: bool) -> Probe:
    """A probe in which a model runs over `width` > 1 query tokens."""
    if role == "target":
        return Probe(f"lookup {width - 1}", _lookup(width - 1, greedy))
    return Probe(f"bush {width} by {role}", _bush(role, width, greedy))


def plain_plan(greedy: bool) -> Plan:
    """Autoregressive decoding at temperature 0, or at any."""
    return _plan("", 0, "" if greedy else "recursive", tree="%t0", name="autoregressive")


def chain_plan(length: int, greedy: bool, draft: str = "draft") -> Plan:
    """A chain by a draft model, which has a cache `@<draft>_kv`, at temperature 0, or at any."""
    forward = f"{draft} %f cache=@{draft}_kv pending=2"
    return _chain(forward, length, greedy, drafts=(draft,), name="chain")


def _plan(
    body: str,
    nodes: int,
    rule: str,
    drafts: Sequence[str] = (),
    *,
    tree: str = "%c",
    name: str = "probe",
    states: str = "",
    verify: str = "",
    end: str = "",
) -> Plan:
    """A plan whose round drafts a tree by `body` and verifies it.

    Args:
        body: lines that draft.
        nodes: of the tree.
        rule: of `accept`; empty for `greedy`.
        drafts: draft models, each with a cache.
        tree: the value that is verified.
        name: of the plan.
        states: lines of further states.
        verify: further attributes of the target's forward.
        end: lines after the commits.
    """
    models = "".join(f"model {model}\n" for model in ("target", *drafts))
    caches = "".join(f"state @{draft}_kv = cache {draft}\n" for draft in drafts)
    commits = "".join(f"  commit @{draft}_kv %e\n" for draft in drafts)
    accept = f"  %a = accept {tree} target=%l"
    if rule:
        accept = f"  %v = uniform {nodes + 1} stream=accept\n{accept} rule={rule} by=%v"
    return parse_plan(
        f"plan {name}\n{models}state @kv = cache target\n{caches}{states}"
        f"round decode {{\n  %t0 = root\n{body}"
        f"  %l = forward target {tree} cache=@kv pending=1{verify}\n{accept}\n"
        f"  %e = emit %a\n  commit @kv %e\n{commits}{end}}}\n"
    )


def _chain(forward: str, length: int, greedy: bool, *, after: str = "", **parts: Any) -> Plan:
    """A chain whose tokens are drafted by a forward on `%f`; `parts` as of `_plan`."""
    draw, how = ("", "") if greedy else ("    %u = uniform 1 stream=draft\n", " how=draw by=%u")
    body = (
        f"  %c = repeat {length} (%t = %t0) {{\n    %f = pick %t of=newest\n"
        f"    %q = forward {forward}\n{draw}"
        f"    %n = grow %t at=%f logits=%q{how}\n    yield %n\n  }}\n{after}"
    )
    return _plan(body, length, "" if greedy else "token", **parts)


def _lookup(length: int, greedy: bool) -> Plan:
    body = f"  %c = lookup @text %t0 at=%t0 match=[1, 3] length={length}\n"
    return _plan(body, length, "" if greedy else "recursive")


def _by_match(greedy: bool) -> Plan:
    body = copies_by_match((1, 4, 8), brief=2, copied=10) + "\n"
    return _plan(body, 10, "" if greedy else "recursive")


def _from_source(source: DraftSource, path: Path | None, width: int, greedy: bool) -> Plan:
    limits, levels = f"length={width}", 2
    if source.evidence == "pools":
        children = max(source.occurrences or width, width)
        limits = f"children={children} length={levels} nodes={width}"
    elif source.evidence == "ranks":
        limits = f"children={width // levels} length={levels}"
    learn = f"  update @drafts %t0 last={source.last}\n" if source.last else ""
    match = print_atom(source.match)
    declared = source.declaration("drafts", path if source.scope == "read_only" else None)
    assume = "assume reproducible=false\n" if source.shares and not greedy else ""
    return _plan(
        f"{learn}  %c = lookup @drafts %t0 at=%t0 match={match} {limits}\n",
        width,
        "" if greedy else "recursive",
        states=f"{assume}state {declared}\n",
        end="  update @drafts %c logits=%l\n" if source.evidence == "ranks" else "",
    )


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
    return _plan(body, nodes, "" if greedy else "recursive", (draft,))


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
    return _plan(body, passes * (judged + 1), "" if greedy else "token", (draft,))


def _bush(draft: str, width: int, greedy: bool) -> Plan:
    draws, hows = [""] * 2, [""] * 2
    if not greedy:
        draws = [f"  %u{i} = uniform {width} stream=draft offset={i * width}\n" for i in (0, 1)]
        hows = [f" how=draw_distinct by=%u{i}" for i in (0, 1)]
    body = (
        f"  %q0 = forward {draft} %t0 cache=@{draft}_kv pending=2\n{draws[0]}"
        f"  %t1 = grow %t0 at=%t0 logits=%q0 children={width}{hows[0]}\n"
        f"  %f1 = pick %t1 of=newest\n  %q1 = forward {draft} %f1 cache=@{draft}_kv\n{draws[1]}"
        f"  %c = grow %t1 at=%f1 logits=%q1 children=1{hows[1]}\n"
    )
    return _plan(body, 2 * width, "" if greedy else "recursive", (draft,))
