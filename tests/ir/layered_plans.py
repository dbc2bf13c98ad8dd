"""Plans whose rounds run parts of a stack: some leave out what another round reads."""

from __future__ import annotations

HEAD = """plan parts
model target
state @kv = cache target
state @part = cache target
state @x = track target layer=2
"""
TAIL = """  %a = accept {tree} target=%l
  %e = emit %a
  commit @kv %e
{more}}}
"""
WHOLE = "  %l = forward target %t cache=@kv pending=1{keep}\n"
LOWER = "  forward target %t cache=@part pending=1 layers=[0:{stop}]{keep} gives=[]\n"
UPPER = "  {rows}forward target %t cache=@part pending=1 layers=[{start}:4] features=@x{gives}\n"
PIPELINE = """  %lag = measure @kv lag(layers=0:2)
  %miss = compute "lag > 0" lag=%lag
  when %miss {
    forward target %t cache=@kv pending=1 layers=[0:2] keep=@x gives=[]
  }
  %s = forward target %t layers=[2:2] features=@x
  %c = grow %t at=%t logits=%s children=2
  %l = segment lane=a {
    %o = forward target %t cache=@kv pending=1 layers=[2:4] features=@x
    yield %o
  }
  segment lane=b {
    %f = pick %c of=newest
    forward target %f cache=@kv layers=[0:2] keep=@x gives=[]
  }
"""
SCHEDULE = 'schedule {\n  when "emitted % 3 == 1" a\n  otherwise b\n}\n'


def _round(name: str, body: str, *written: str, tree: str = "%t") -> str:
    more = "".join(f"  commit @{state} %e\n" for state in written)
    return f"round {name} {{\n  %t = root\n{body}{TAIL.format(tree=tree, more=more)}"


def _plan(*rounds: str) -> str:
    return HEAD + "".join(rounds) + (SCHEDULE if len(rounds) > 1 else "")


def _ends(stop: int) -> str:
    """Layers up to `stop`, and those from 2 on, in two passes."""
    upper = UPPER.format(rows="", start=2, gives=" gives=[]")
    return LOWER.format(stop=stop, keep="") + upper


INSIDE = """  {when}forward target %t cache=@kv pending=1 layers=[0:3] keep=@x{way} gives=[]
{end}  %l = forward target %t cache=@kv pending=1 layers=[2:4] features=@x
"""
_FLAG = '%g = compute "emitted % 2 == 1"\n  when %g {\n    '
_STORED = WHOLE.format(keep=" keep=@x")
_ON_PART = _round("b", _STORED + LOWER.format(stop=4, keep=""), "part", "x")
_EXIT = LOWER.format(stop=2, keep=" keep=@x") + UPPER.format(rows="%l = ", start=2, gives="")
_EXITS = _round("b", _EXIT, "part", "x").replace("  commit @kv %e\n", "")
_PIPELINE = _round("b", PIPELINE, "x", tree="%c")

BROKEN = {
    "a hole below layers that run": (
        "residency",
        "round a does not run layer 1 on @part, and no pass fills a gap between layers",
        _plan(_round("a", _STORED + _ends(1), "part", "x"), _ON_PART),
    ),
    "a round that keeps no states to go on from": (
        "residency",
        "round a does not run layer 2 on @part; let it keep=@x, from which this pass can catch up",
        _plan(_round("a", WHOLE.format(keep="") + LOWER.format(stop=2, keep=""), "part"), _EXITS),
    ),
    "a track that one round keeps where text is missing, and the other never": (
        "features",
        "round a runs layer 2 without keep=@x",
        _plan(_round("a", WHOLE.format(keep="")), _PIPELINE),
    ),
    "a track of scratch alone": (
        "features",
        "no earlier forward keeps the root's state in @x; give one keep=",
        _plan(_round("a", INSIDE.format(when="", way=" write=scratch", end=""), "x")),
    ),
    "a track that is kept now and then": (
        "features",
        "@x lacks the root's state where the flag around keep= is false; compute the flag from"
        " `measure ... lag(layers=)`",
        _plan(_round("a", INSIDE.format(when=_FLAG, way="", end="  }\n"), "x")),
    ),
    "a track of earlier rounds alone": (
        "features",
        "no earlier forward keeps the root's state in @x; give one keep=",
        _plan(
            _round("a", WHOLE.format(keep=" keep=@x"), "x"),
            _round("b", "  %s = forward target %t layers=[2:2] features=@x\n" + _STORED, "x"),
        ),
    ),
}  # fmt: skip
"""Rule, what it says, and the plan."""
SOUND = {
    "layers in two passes": _plan(_round("a", _STORED + _ends(2), "part", "x"), _ON_PART),
    "a round that keeps states to go on from": _plan(
        _round("a", _STORED + LOWER.format(stop=2, keep=""), "part", "x"), _EXITS
    ),
    "a track of a layer inside a span": _plan(
        _round("a", INSIDE.format(when="", way="", end=""), "x")
    ),
    "a track that every round keeps": _plan(_round("a", _STORED, "x"), _PIPELINE),
}
"""Their likes, which run."""
