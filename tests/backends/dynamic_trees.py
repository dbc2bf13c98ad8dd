"""Plans whose trees differ by request: expand each level's best nodes, judge the best of all."""

from __future__ import annotations

from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan

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
