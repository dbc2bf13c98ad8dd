"""Plans whose trees differ by request: expand each level's best nodes, judge the best of all."""

from __future__ import annotations

from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from tests.backends.definition import edited

HEAD = """plan dynamic
model target
model draft
{assume}state @kv = cache target
state @dkv = cache draft
"""
LOOP = """  %pool = repeat {trips} (%t = %t1) {{
    %f = pick %t of=newest best={children}
    %q = forward draft %f cache=@dkv
    %n = grow %t at=%f logits=%q children={children}
    yield %n
  }}
"""
ROUND = """round decode {{
  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending={pending}
  {first} = grow %t0 at=%t0 logits=%q0 children={children}
{loop}  %b = pick %pool of=all best={nodes}
  %c = prune %pool to=%b
  %l = forward target %c cache=@kv pending=1
{judge}
  %e = emit %a
  commit @kv %e
  commit @dkv %e
}}
"""


def dynamic_text(
    children: int, levels: int, nodes: int, *, greedy: bool = True, pending: int = 2
) -> str:
    """Plan text: `levels` draft forwards, `children` nodes expanded into as many each."""
    judge = "  %a = accept %c target=%l"
    if not greedy:
        uniforms = min(nodes, pool_size(children, levels)) + 1
        judge = f"  %u = uniform {uniforms} stream=accept\n{judge} rule=recursive by=%u"
    loop = LOOP.format(trips=levels - 1, children=children) if levels > 1 else ""
    assume = "" if greedy else "assume temperature=0.0..1.0\n"
    return HEAD.format(assume=assume) + ROUND.format(
        children=children,
        nodes=nodes,
        pending=pending,
        judge=judge,
        loop=loop,
        first="%t1" if loop else "%pool",
    )


def dynamic_plan(
    children: int, levels: int, nodes: int, *, greedy: bool = True, pending: int = 2
) -> Plan:
    """`dynamic_text`, read."""
    return parse_plan(dynamic_text(children, levels, nodes, greedy=greedy, pending=pending))


def pool_size(children: int, levels: int) -> int:
    """Nodes that are drafted."""
    return children + (levels - 1) * children * children


DRAWN = " how=draw by=%u"
EDITS: dict[str, dict[str, str]] = {
    "choices that have run": {"pick %t of=newest best=3": "pick %t of=all best=3"},
    "one choice twice": {"    %n = grow": "    %r = forward draft %f cache=@dkv\n    %n = grow"},
    "rows of another choice": {
        "    %n = grow %t at=%f": "    %g = pick %t of=newest best=2\n    %n = grow %t at=%g"},
    "drawn below choices": {
        "    %n = grow %t at=%f logits=%q children=3":
        f"    %u = uniform 9 stream=x\n    %n = grow %t at=%f logits=%q children=3{DRAWN}"},
    "choices among drawn nodes": {
        "  %t1 = grow %t0 at=%t0 logits=%q0 children=3":
        f"  %u = uniform 3 stream=x\n  %t1 = grow %t0 at=%t0 logits=%q0 children=3{DRAWN}",
        "best=3": "best=2"},
    "a choice without its ancestors": {"pick %pool of=all best=7": "pick %pool of=newest best=7"},
    "growth after pruning": {
        "  %a = accept %c": "  %d = grow %c at=%c logits=%l\n  %a = accept %c"},
    "part of a pruned tree": {
        "  %l = forward target %c cache=@kv pending=1": "  %l = forward target %c cache=@kv "
        "pending=1\n  %x = pick %c of=all best=2\n  forward draft %x cache=@dkv gives=[]"},
    "the pool after pruning": {
        "  %a = accept %c": "  %d = pick %pool of=newest\n  forward draft %d cache=@dkv gives=[]\n"
        "  %a = accept %c"},
    "parents that another cache ran": {
        "state @dkv = cache draft\n": "state @dkv = cache draft\nstate @skv = cache draft\n",
        "  %b = pick": "  %s = pick %pool of=newest best=2\n"
        "  forward draft %s cache=@skv pending=2 gives=[]\n  %b = pick",
        "  commit @dkv %e": "  commit @dkv %e\n  commit @skv %e"},
    "first layers of choices": {
        "    %q = forward draft %f cache=@dkv":
        "    forward draft %f cache=@dkv layers=[0:1] gives=[]\n"
        "    %q = forward draft %f cache=@dkv layers=[0:2]"},
    "the worst": {"best=7": "worst=7"},
    "scores of nodes alone": {"best=7": "best=7 by=own"},
    "the best children": {"%f logits=%q children=3": "%f logits=%q children=3 keep=4"},
}  # fmt: skip
"""Of `dynamic_text(3, 3, 7)`, ops that nobody's method puts together."""
LOOKED_UP = """  %t1 = lookup @text %t0 at=%t0 length=3
  %tip = pick %t1 of=newest nodes=[2]
  %pool = lookup @text %t1 at=%tip length=6
"""


def edited_texts() -> dict[str, str]:
    """The plans of `EDITS`, and one whose nodes were all looked up."""
    text = dynamic_text(3, 3, 7)
    start, end = text.index("  %q0"), text.index("  %b = pick")
    looked_up_text = f"{text[:start]}{LOOKED_UP}{text[end:]}".replace("  commit @dkv %e\n", "")
    return {**{name: edited(text, of) for name, of in EDITS.items()}, "looked up": looked_up_text}
