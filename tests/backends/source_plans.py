"""Plans that draft from sources, as text."""

from __future__ import annotations

from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan

LOOKUPS = {
    "ngram": ("ngram(order=4, capacity=64)", "request", "match=[1, 3] length=5", 5, 4),
    "ngram, several": ("ngram(order=3)", "process", "match=[1, 2] children=3 length=2", 6, 3),
    "automaton": ("automaton(capacity=40)", "request", "match=[1, 8] length=6", 6, 1),
    "log": ("log(capacity=200)", "process", "match=[1, 6] length=5", 5, 1),
    "log of one request": ("log(capacity=200)", "request", "match=[1, 6] length=5", 5, 1),
    "log, several": ("log(capacity=300)", "process", "match=[1, 6] children=3 length=3", 9, 1),
    "log, merged": ("log(capacity=300)", "process", "match=[1, 4] children=8 length=4 nodes=9",
                    9, 1),
    "trie": ("trie(capacity=150)", "process", "match=[1, 3] length=4", 4, 6),
    "trie, several": ("trie(capacity=150)", "process", "match=[1, 3] children=2 length=3", 6, 6),
    "trie, merged": ("trie(capacity=400)", "process", "match=[1, 3] children=4 length=4 nodes=7",
                     7, 6),
}  # fmt: skip
"""Source, scope, what is looked up, nodes, and the longest runs that are taught."""

RECYCLING = """plan recycling
model target
{assume}state @kv = cache target
state @adj = source adjacency(width=4) scope={scope}
round decode {{
  %t0 = root
  %t1 = lookup @adj %t0 at=%t0 children=3
  %f1 = pick %t1 of=newest nodes=[0, 1]
  %t2 = lookup @adj %t1 at=%f1 children=[2, 1]
  %f2 = pick %t2 of=newest nodes=[0]
  %t3 = lookup @adj %t2 at=%f2 children=2 length=2
  %l = forward target %t3 cache=@kv pending=1
{judge}  %e = emit %a
  commit @kv %e
  update @adj %t3 logits=%l
}}
"""


def source_plans(greedy: bool) -> dict[str, Plan]:
    """By name; none is reproducible where requests learn from one another."""
    plans = {name: lookup_plan(*setting, greedy) for name, setting in LOOKUPS.items()}
    for scope in ("request", "process"):
        text = RECYCLING.format(
            scope=scope, assume=_assume(scope, greedy), judge=_judge("%t3", 10, greedy)
        )
        plans[f"adjacency of one {scope}"] = parse_plan(text)
    return plans


def lookup_plan(source: str, scope: str, wanted: str, nodes: int, last: int, greedy: bool) -> Plan:
    text = f"""plan lookup
model target
{_assume(scope, greedy)}state @kv = cache target
state @past = source {source} scope={scope}
round decode {{
  %t0 = root
  update @past %t0 last={last}
  %c = lookup @past %t0 at=%t0 {wanted}
  %l = forward target %c cache=@kv pending=1
{_judge("%c", nodes, greedy)}  %e = emit %a
  commit @kv %e
}}
"""
    return parse_plan(text)


def _assume(scope: str, greedy: bool) -> str:
    return "" if greedy or scope == "request" else "assume reproducible=false\n"


def _judge(tree: str, nodes: int, greedy: bool) -> str:
    if greedy:
        return f"  %a = accept {tree} target=%l\n"
    return (
        f"  %v = uniform {nodes + 1} stream=accept\n"
        f"  %a = accept {tree} target=%l rule=recursive by=%v\n"
    )
