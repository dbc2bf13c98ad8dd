"""Plans whose drafts go on while what was drafted before is verified."""

from __future__ import annotations


def windows(length: int, *, drawn: bool = False) -> str:
    """Drafts of `length` tokens a round, judged one round later but for the first."""
    window = length - 1
    first = "\n    %u0 = uniform 1 stream=draft" if drawn else ""
    later = "\n      %u = uniform 1 stream=draft offset=1" if drawn else ""
    judge = "rule=token by=%v\n  %e = emit %a" if drawn else "\n  %e = emit %a"
    return f"""plan windows
model target
model draft
state @kv = cache target
state @dkv = cache draft
state @window = value tree(nodes={window}, depth={window}{", how=draw" if drawn else ""})
round decode {{
  %w = load @window
  %l = segment lane=a {{
    %o = forward target %w cache=@kv pending=1
    yield %o
  }}
  %c = segment lane=b {{
    %q0 = forward draft %w cache=@dkv pending=1
    %tip = pick %w of=leaves{first}
    %t0 = grow %w at=%tip logits=%q0{" how=draw by=%u0" if drawn else ""}
    %d = repeat {window} (%t = %t0) {{
      %f = pick %t of=newest
      %q = forward draft %f cache=@dkv{later}
      %n = grow %t at=%f logits=%q{" how=draw by=%u" if drawn else ""}
      yield %n
    }}
    yield %d
  }}{f"{chr(10)}  %v = uniform {2 * length} stream=accept" if drawn else ""}
  %a = accept %c target=%l {judge}
  %r = reroot %c %e nodes={window}
  commit @kv %e
  commit @dkv %e
  store @window %r
}}
"""
