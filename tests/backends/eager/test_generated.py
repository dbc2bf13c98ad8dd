"""Generated plans decode as the definition says: tokens, rounds and draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.capabilities import refusals
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from tests.backends.eager.generated_case import decode_alike, load_models, save_models
from tests.backends.many_plans import GENERATED
from tests.ir.generated import generated_plan

HEAD = "plan corner\nmodel target\nassume law=free temperature=0.0..1.0\nstate @kv = cache target\n"
JUDGED = """  %l = forward target %c cache=@kv pending=1{keep}
  %v = uniform 9 stream=accept
  %a = accept %c target=%l rule=recursive by=%v
  %e = emit %a
  commit @kv %e
"""
CORNERS = {
    "a head writes its own state into the track that it reads": """model head
state @hkv = cache head
state @h = track target layer=last
round r {
  %t = root
  forward head %t cache=@hkv pending=6 features=@h shift=1 keep=@h gives=[]
  %q = forward head %t cache=@hkv pending=6 features=@h shift=1 keep=@h write=scratch
  %t1 = grow %t at=%t logits=%q children=6
  %f = pick %t1 of=newest best=1
  %q1 = forward head %f cache=@hkv pending=6 features=@h shift=1 keep=@h write=scratch
  %c = grow %t1 at=%f logits=%q1 children=2
"""
    + JUDGED.format(keep=" keep=@h")
    + "  commit @hkv %e\n  commit @h %e\n}\n",
    "scratch runs nodes that had run": """round r {
  %t = root
  %q = forward target %t cache=@kv pending=1
  %t1 = grow %t at=%t logits=%q children=2
  %l1 = forward target %t1 cache=@kv pending=1
  %q1 = forward target %t1 cache=@kv pending=2 skip=[attn.1, mlp.1] write=scratch
  %c = grow %t1 at=%t1 logits=%q1
"""
    + JUDGED.format(keep="")
    + "}\n",
    "scratch before and after a pass for good": """round r {
  %t = root
  %q = forward target %t cache=@kv pending=2 skip=[attn.2] write=scratch
  %t1 = grow %t at=%t logits=%q children=2
  %q0 = forward target %t1 cache=@kv pending=2 skip=[attn.2] write=scratch
  %l1 = forward target %t1 cache=@kv pending=1
  %t2 = grow %t1 at=%t1 logits=%q0
  %f = pick %t2 of=newest
  %q1 = forward target %f cache=@kv pending=2 skip=[attn.2] write=scratch
  %c = grow %t2 at=%f logits=%q1
"""
    + JUDGED.format(keep="")
    + "}\n",
    "a view that lags": """state @part = cache target view=@kv policy=sink_recent(sink=2) budget=4
round a {
  %c = root
"""
    + JUDGED.format(keep="")
    + """}
round b {
  %t = root
  %q = forward target %t cache=@part pending=4 write=scratch
  %c = grow %t at=%t logits=%q children=2
"""
    + JUDGED.format(keep="")
    + """  refresh @part
}
schedule {
  when "emitted % 3 < 2" a
  otherwise b
}
""",
    "a head beside a view": """model head
state @hkv = cache head
state @h = track target layer=last
state @part = cache target view=@kv policy=sink_recent(sink=2) budget=4
round r {
  %t = root
  %q = forward head %t cache=@hkv pending=4 features=@h shift=1
  %t1 = grow %t at=%t logits=%q children=6
  %f = pick %t1 of=newest best=1
  %q1 = forward target %t1 cache=@part pending=3 write=scratch
  %c = grow %t1 at=%f logits=%q1
"""
    + JUDGED.format(keep=" keep=@h")
    + "  commit @hkv %e\n  commit @h %e\n  refresh @part\n}\n",
    "the root is the worst leaf where nothing was found": """model draft
state @dkv = cache draft
round r {
  %t = root
  %x = lookup @text %t at=%t match=[3, 3] length=2 children=2
  %q = forward draft %x cache=@dkv pending=5
  %f = pick %x of=leaves worst=1
  %c = grow %x at=%f logits=%q children=2
"""
    + JUDGED.format(keep="")
    + "  commit @dkv %e\n}\n",
}
"""Rounds in which data or scratch have the last word."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints, and a datastore."""
    made = tmp_path_factory.mktemp("generated")
    save_models(made)
    return made


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Any]:
    """The models of generated plans."""
    return load_models(folder)


def test_there_are_enough() -> None:
    graphs = [number for number in GENERATED if not refusals(generated_plan(number), STATIC)]
    assert len(GENERATED) >= 30 and len(graphs) >= len(GENERATED) / 2


@pytest.mark.parametrize("number", GENERATED)
def test_generated_plans_decode_as_is_defined(
    number: int, models: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    decode_alike(generated_plan(number), models)


@pytest.mark.parametrize("name", CORNERS)
def test_corners_decode_as_is_defined(name: str, models: dict[str, Any]) -> None:
    plan = parse_plan(HEAD + CORNERS[name])
    assert not verify_plan(plan)
    decode_alike(plan, models, drafts=True)
