"""Texts of plans of one round: a test writes the ops that draft `%c`, the others stand here."""

from __future__ import annotations

from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan

GREEDY = "  %a = accept %c target=%l\n"
"""Accepts what the target would say itself."""

BEHIND = """  %t0 = root
  %m = lookup @text %t0 at=%t0 match=[2, 4] length=4
  %q0 = forward draft %t0 cache=@dkv pending=5
  %k = measure %m count
  %miss = compute "k < 1" k=%k
  %c = when %miss otherwise=[%m] {
    %d = grow %t0 at=%t0 logits=%q0
    yield %d
  }"""
"""Ops that copy up to four tokens, and draft one without a match, for `drafted`."""

TWO_LENGTHS = """  %t0 = root
  %long = lookup @text %t0 at=%t0 match=[2, 6] length=6
  %brief = lookup @text %t0 at=%t0 match=[1, 1] length=2
  %k = measure %long count
  %unsure = compute "k < 1" k=%k
  %c = when %unsure otherwise=[%long] {
    yield %brief
  }"""
"""Ops that copy six tokens after a match of two, and two after one token, for `drafted`."""


def drafted(
    body: str,
    *,
    name: str = "drafted",
    head: str = "",
    judge: str = GREEDY,
    draft: bool = True,
    after: str = "",
) -> str:
    """A plan that drafts a tree `%c`, and verifies it.

    Args:
        body: ops that draft, from the root on.
        name: of the plan.
        head: lines of assumptions and of further states.
        judge: ops that accept `%a` by the target's logits `%l`.
        draft: a model of this name, with a cache `@dkv`, takes part.
        after: ops at the end of the round.
    """
    model, cache, commit = "model draft\n", "state @dkv = cache draft\n", "  commit @dkv %e\n"
    if not draft:
        model = cache = commit = ""
    return (
        f"plan {name}\nmodel target\n{model}state @kv = cache target\n{cache}{head}"
        f"round decode {{\n{body.strip(chr(10))}\n  %l = forward target %c cache=@kv pending=1\n"
        f"{judge}  %e = emit %a\n  commit @kv %e\n{commit}{after}}}\n"
    )


def judged(rule: str, nodes: int) -> str:
    """Accepts by a rule that draws, a tree of so many nodes."""
    return (
        f"  %v = uniform {nodes + 1} stream=accept\n  %a = accept %c target=%l rule={rule} by=%v\n"
    )


def drafted_chain(length: int, *, drawn: bool = False) -> str:
    """A plan whose draft model drafts a chain, its best tokens or drawn ones."""
    draw, how = ("    %u = uniform 1 stream=draft\n", " how=draw by=%u") if drawn else ("", "")
    body = f"""  %t0 = root
  %c = repeat {length} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
{draw}    %n = grow %t at=%f logits=%q{how}
    yield %n
  }}"""
    return drafted(body, judge=judged("token", length) if drawn else GREEDY)


def greedy_chain(length: int) -> Plan:
    """`drafted_chain`, read."""
    return parse_plan(drafted_chain(length))
