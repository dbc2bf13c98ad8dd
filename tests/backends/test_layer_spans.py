"""Rounds that run a stack in parts: lower layers draft, upper ones go on from what they left."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.state.caches import Cache
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.acceptance.teacher import text_logits
from specplan.runtime.executable import forward_variant, read_forward_variant
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, load_pair, plainly

HEAD = "plan spans\nmodel target\nstate @kv = cache target\n"
TRACKS = {"one": 1, "two": 2}
CHAIN = """round chain {{
  %t0 = root
  %c = repeat 3 (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward target %f cache=@kv pending=1 layers=[0:{0}] keep=@{1}
    %n = grow %t at=%f logits=%q
    yield %n
  }}
  %last = pick %c of=newest
  forward target %last cache=@kv layers=[0:{0}] keep=@{1} gives=[]
  %l = forward target %c cache=@kv pending=1 layers=[{0}:3] features=@{1}
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
  commit @{1} %e
}}
"""
TREE = """round tree {
  %t0 = root
  %q0 = forward target %t0 cache=@kv pending=1 layers=[0:1] keep=@one
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f1 = pick %t1 of=newest
  %q1 = forward target %f1 cache=@kv layers=[0:1] keep=@one
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 2, 1]
  %last = pick %c of=newest
  forward target %last cache=@kv layers=[0:1] keep=@one gives=[]
  forward target %c cache=@kv pending=1 layers=[1:2] features=@one keep=@two gives=[]
  %l = forward target %c cache=@kv pending=1 layers=[2:3] features=@two
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
  commit @one %e
  commit @two %e
}
"""
WHOLE = """round whole {
  %t = root
  %l = forward target %t cache=@kv pending=1
  %a = accept %t target=%l
  %e = emit %a
  commit @kv %e
}
"""
CHAIN_1 = CHAIN.format(1, "one")
PLANS = {
    "chain after 1": CHAIN_1,
    "chain after 2": CHAIN.format(2, "two"),
    "tree in three parts": TREE,
    "turns": TREE + CHAIN_1 + WHOLE + 'schedule {\n  when "emitted % 3 == 0" tree\n'
    '  when "emitted % 3 == 1" chain\n  otherwise whole\n}\n',
}  # fmt: skip


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


def text_of(rounds: str) -> str:
    """A plan's text, with the tracks that its rounds name."""
    tracks = (
        f"state @{name} = track target layer={layer}\n"
        for name, layer in TRACKS.items()
        if f"@{name}" in rounds
    )
    return HEAD + "".join(tracks) + rounds


def plan_of(rounds: str) -> Plan:
    return parse_plan(text_of(rounds))


@pytest.mark.parametrize("rounds", PLANS.values(), ids=PLANS)
def test_parts_of_a_stack_say_what_the_whole_says(
    rounds: str, models: dict[str, CausalModel]
) -> None:
    requests = [
        Request(
            prompt_tokens=tuple((i * 7 + 3 * j) % 61 for j in range(1 + i)),
            max_new_tokens=14 + i,
            stop_tokens=(7,) if i % 2 else (),
        )
        for i in range(8)
    ]
    expected = plainly(models, requests)
    plan = plan_of(rounds)
    assert in_batches(plan, models, requests, 5) == expected
    assert in_batches(plan, models, requests[2:4], 1) == expected[2:4]


def test_no_layer_runs_a_token_twice(models: dict[str, CausalModel]) -> None:
    session = (
        EagerBackend()
        .compile(plan_of(CHAIN_1), models)
        .start([Request(prompt_tokens=(1, 2, 3), max_new_tokens=8)])
    )
    session.prefill()
    heard: list[tuple[str, int]] = []
    session.step("chain", lambda op, _, __, width, *___: heard.append((op, width)))
    forwards = [item for item in heard if item[0].startswith("forward")]
    assert forwards == [
        *[("forward:0:1", 1)] * 3, ("forward:0:1 no logits", 1), ("forward:1:3", 4)
    ]  # fmt: skip


def test_variants_are_read_back() -> None:
    for layers in (None, (0, 8), (12, 32)):
        for logits, skip in product((True, False), ((), ("attn.1", "mlp.12"))):
            word = forward_variant(layers, logits, skip)
            assert read_forward_variant(word) == (layers, logits, skip)
    assert forward_variant(None, True) == ""


def test_a_node_is_there_when_all_layers_ran_it(models: dict[str, CausalModel]) -> None:
    model = models["target"]
    lower, upper = (0, 1), (1, 3)
    cache = Cache(model, model.new_cache(1, 8), (lower, upper))
    cache.keys, cache.there = torch.tensor([[11, 12]]), torch.ones(1, 2, dtype=torch.bool)
    cache.compare()
    cache.note([lower], False, torch.tensor([[0, 1]]), cache.there)
    assert cache.ran_by([lower], False).tolist() == [[True, True]]
    assert cache.ran_by([lower, upper], False).tolist() == [[False, False]]
    cache.note([upper], False, torch.tensor([[0]]), cache.there[:, :1])
    assert cache.ran_by([lower, upper], False).tolist() == [[True, False]]


def test_first_layers_are_a_smaller_model(models: dict[str, CausalModel]) -> None:
    """The pair's draft model is the target's first two layers."""
    text = [3, 1, 4, 1, 5, 9, 2, 6]
    left = text_logits(models["target"], text, 3, 2)
    assert torch.allclose(left, text_logits(models["draft"], text, 3))


def test_a_stack_of_another_height_is_refused(models: dict[str, CausalModel]) -> None:
    plan = plan_of(CHAIN_1.replace("1:3", "1:4"))
    with pytest.raises(UsageError, match="ends the stack of target at layer 4, and it has 3 layer"):
        EagerBackend().compile(plan, models)


def test_states_that_no_earlier_pass_keeps_starve_those_that_read_them() -> None:
    keeping, read = (next(line for line in TREE.splitlines() if word in line)
                  for word in ("keep=@two", "features=@two"))  # fmt: skip
    swapped = TREE.replace(keeping, "KEPT").replace(read, keeping).replace("KEPT", read)
    without = "".join(line for line in swapped.splitlines(True) if "%last" not in line)
    assert any(finding.rule == "starvation" for finding in verify_plan(plan_of(without)))
