"""Plans that hold each combination of ops once: those that compilers of rounds are tested on."""

from __future__ import annotations

from specplan.ir.parser import parse_plan
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
DRAWN_TREE = """plan drawn
model target
model draft
assume temperature=0.0..1.0
state @kv = cache target
state @dkv = cache draft
round decode {
  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=2
  %u0 = uniform 2 stream=draft
  %t1 = grow %t0 at=%t0 rows=%q0 children=2 how=draw_distinct by=%u0
  %f = pick %t1 of=newest
  %q1 = forward draft %f cache=@dkv
  %u1 = uniform 4 stream=draft offset=2
  %c = grow %t1 at=%f rows=%q1 children=2 how=draw_distinct by=%u1
  %l = forward target %c cache=@kv pending=1
  %v = uniform 7 stream=accept
  %a = accept %c target=%l rule=recursive by=%v
  %e = emit %a
  commit @kv %e
  commit @dkv %e
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
PLANS = {
    "layer spans and tracks": (parse_plan(EARLY_EXIT), {}),
    "trees drawn without replacement": (parse_plan(DRAWN_TREE), {"temperature": 0.8}),
    "looked up chains, truncated laws": (
        parse_plan(COPIED),
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    ),
    "trees that differ by request": (dynamic_plan(2, 2, 4), {}),
}


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
