"""Plans that hold each combination of ops once: those that compilers of rounds are tested on."""

from __future__ import annotations

from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan
from specplan.runtime.requests import Request
from tests.backends.dynamic_trees import dynamic_plan

EARLY_EXIT = """plan early
model target
state @kv = cache target
state @low = track target layer=1
round decode {
  %t0 = root
  %c = repeat 2 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward target %f cache=@kv pending=1 layers=[0:1] keep=@low
    %n = grow %t at=%f rows=%q
    yield %n
  }
  %last = pick %c of=newest
  forward target %last cache=@kv pending=1 layers=[0:1] keep=@low gives=[]
  %l = forward target %c cache=@kv pending=1 layers=[1:3] features=@low
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
  commit @low %e
}
"""
COPIED = """plan copied
model target
assume temperature=0.0..1.0
state @kv = cache target
round decode {
  %t0 = root
  %c = lookup @text %t0 at=%t0 match=[1, 3] length=3
  %l = forward target %c cache=@kv pending=1
  %v = uniform 4 stream=accept
  %a = accept %c target=%l rule=token by=%v
  %e = emit %a
  commit @kv %e
}
"""


def drawn_tree(depth: int, *, split: bool = False) -> Plan:
    """Two children of each node, drawn without replacement, so many levels of them.

    Where `split`, the target of two layers runs one layer after the other, with a track between.
    """
    lines, nodes = [], 0
    for level in range(depth):
        lines += [
            f"%f{level} = pick %t{level} of=newest",
            f"%q{level} = forward draft %f{level} cache=@dkv" + " pending=2" * (level == 0),
            f"%u{level} = uniform {2 << level} stream=draft offset={nodes}",
            f"%t{level + 1} = grow %t{level} at=%f{level} rows=%q{level} children=2"
            f" how=draw_distinct by=%u{level}",
        ]
        nodes += 2 << level
    check = [f"%l = forward target %t{depth} cache=@kv pending=1"]
    if split:
        lower = f"{check[0][5:]} layers=[0:1] keep=@low gives=[]"
        check = [lower, f"{check[0]} layers=[1:2] features=@low"]
    body = "\n  ".join(lines + check)
    track = "state @low = track target layer=1" if split else ""
    return parse_plan(
        f"""plan drawn
model target
model draft
assume temperature=0.0..1.0
state @kv = cache target
state @dkv = cache draft
{track}
round decode {{
  %t0 = root
  {body}
  %v = uniform {nodes + 1} stream=accept
  %a = accept %t{depth} target=%l rule=recursive by=%v
  %e = emit %a
  commit @kv %e
  commit @dkv %e
  {"commit @low %e" if split else ""}
}}
"""
    )


PLANS = {
    "layer spans and tracks": (parse_plan(EARLY_EXIT), {}),
    "trees drawn without replacement": (drawn_tree(2), {"temperature": 0.8}),
    "looked up chains, truncated laws": (
        parse_plan(COPIED),
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    ),
    "trees that differ by request": (dynamic_plan(2, 2, 4), {}),
}


FEWER = {
    "layer spans, tracks, drawn trees": (drawn_tree(1, split=True), {"temperature": 0.8}),
    **{name: PLANS[name] for name in list(PLANS)[2:]},
}
"""The same in fewer plans, for models of two layers: compilers take their time by the op."""


def requests_of(**settings: float) -> list[Request]:
    """Three prompts over a vocabulary of 61 that repeat themselves."""
    return [
        Request(
            prompt_tokens=tuple((i * i) % (5 + seed) for i in range(3 + 9 * seed)),
            max_new_tokens=16 + seed,
            stop_tokens=(40,),
            seed=seed,
            **settings,
        )
        for seed in range(3)
    ]
