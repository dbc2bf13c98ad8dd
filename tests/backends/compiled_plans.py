"""Plans that hold each combination of ops once: those that compilers of rounds are tested on."""

from __future__ import annotations

from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.requests import Request
from tests.backends.dynamic_trees import dynamic_plan
from tests.plan_texts import drafted, drafted_chain

TREE = drafted(
    """
  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=2
  %t1 = grow %t0 at=%t0 logits=%q0 children=2
  %f1 = pick %t1 of=newest
  %q1 = forward draft %f1 cache=@dkv
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 1]
"""
)
EARLY_EXIT = """plan early
model target
state @kv = cache target
state @low = track target layer=1
round decode {
  %t0 = root
  %c = repeat 2 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward target %f cache=@kv pending=1 layers=[0:1] keep=@low
    %n = grow %t at=%f logits=%q
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
state @next = source adjacency(width=3)
state @guess = value tree(nodes=2, depth=2, init=5)
round decode {
  %t0 = root
  %g = load @guess
  %t1 = lookup @text %t0 at=%t0 match=[1, 3] length=3
  %f = pick %t1 of=newest nodes=[0, 2]
  %c = lookup @next %t1 at=%f children=[2, 1]
  %l, %m = forward target %c %g cache=@kv pending=1
  %v = uniform 7 stream=accept
  %a = accept %c target=%l rule=recursive by=%v
  %e = emit %a
  commit @kv %e
  update @next %c logits=%l
  %n = relabel %g logits=%m
  %left = measure %a accepted
  %same = compute "left < 1" left=%left
  %k = when %same otherwise=[%n] {
    %x = relabel %g token=5
    yield %x
  }
  store @guess %k
}
"""
ENDED = """plan ended
model target
model draft
state @kv = cache target
state @dkv = cache draft
state @bar = value number(init=0.05)
round decode {
  %t0 = root
  %b = load @bar
  %some = compute "b > 0.01" b=%b
  %s0 = compute "1.0"
  %pool, %end = repeat 2 (%t = %t0, %s = %s0) only=%some {
    %f = pick %t of=newest best=1
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q children=2
    %m = measure %q top1
    %h = measure %q entropy
    %z = uniform 1 stream=stop
    %c = measure %z uniform
    %p = compute "s*m" s=%s m=%m
    %stop = compute "p < b or h > 3.4 or c > 0.7" p=%p b=%b h=%h c=%c
    yield %n, %p until=%stop
  }
  %best = pick %pool of=all best=3
  %tree = prune %pool to=%best
  %l = forward target %tree cache=@kv pending=1
  %a = accept %tree target=%l
  %hit = measure %a accepted
  %all = measure %tree count
  %rate = compute "hit/max(all, 1)" hit=%hit all=%all
  %next = compute "where(n < 1, 0.1, where(r <= 0, b/5, b + 0.1*r))" n=%all r=%rate b=%b
  store @bar %next
  %e = emit %a
  commit @kv %e
  commit @dkv %e
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
            f"%t{level + 1} = grow %t{level} at=%f{level} logits=%q{level} children=2"
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


LOOKED_UP = "looked up trees, rows taught, a tree carried on, truncated laws"
PLANS = {
    "layer spans and tracks": (parse_plan(EARLY_EXIT), {}),
    "trees drawn without replacement": (drawn_tree(2), {"temperature": 0.8}),
    LOOKED_UP: (
        parse_plan(COPIED),
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    ),
    "trees that differ by request": (dynamic_plan(2, 2, 4), {}),
}


FEWER = {
    "layer spans, tracks, drawn trees": (drawn_tree(1, split=True), {"temperature": 0.8}),
    LOOKED_UP: PLANS[LOOKED_UP],
    "loops that end, trees that differ, numbers": (parse_plan(ENDED), {}),
}
"""The same in fewer plans, for models of two layers: compilers take their time by the op."""
DRAWN_CHAIN = "a drawn token"
SHORT = (parse_plan(drafted_chain(1, drawn=True)), {"temperature": 0.8})
"""What native code takes least time for: both models, draws of drafts and of the judge."""


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
