"""Heads in rounds: chains, static and dynamic trees, and what their caches hold after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.session import EagerSession
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.acceptance.heads import text_features
from specplan.runtime.generate import generate
from specplan.runtime.models.attention import additive_mask
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import Unrolled, unrolled
from specplan.runtime.requests import Request
from tests.backends.heads import with_heads
from tests.backends.pairs import in_batches, load_pair, plainly, save_pair

VOCABULARY = 7
CHAIN = """
  %t1 = grow %t0 at=%t0 logits=%q0
  %c = repeat 2 (%t = %t1) {
    %f = pick %t of=newest
    %q = forward head %f cache=@hkv features=@o shift=1 keep=@o write=scratch
    %n = grow %t at=%f logits=%q
    yield %n
  }"""
TREE = """
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f1 = pick %t1 of=newest nodes=[0, 1]
  %q1 = forward head %f1 cache=@hkv features=@o shift=1 keep=@o write=scratch
  %t2 = grow %t1 at=%f1 logits=%q1 children=[2, 1]
  %f2 = pick %t2 of=newest
  %q2 = forward head %f2 cache=@hkv features=@o shift=1 keep=@o write=scratch
  %c = grow %t2 at=%f2 logits=%q2 children=2"""
DYNAMIC = """
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %pool = repeat 2 (%t = %t1) {
    %f = pick %t of=newest best=3
    %q = forward head %f cache=@hkv features=@o shift=1 keep=@o write=scratch
    %n = grow %t at=%f logits=%q children=3
    yield %n
  }
  %b = pick %pool of=all best=8
  %c = prune %pool to=%b"""
BLOCK = """
  %c = repeat 3 (%t = %t0) {
    %f = pick %t of=newest
    %n = grow %t at=%f logits=%q0
    yield %n
  }"""
SHAPES = {"chain": CHAIN, "tree": TREE, "dynamic tree": DYNAMIC}


def plan_of(
    drafted: str,
    temperature: float = 0.8,
    block: bool = False,
    behind: int | None = None,
    read: str = "[1, 2]",
) -> Plan:
    """A head drafts, the target judges; `behind`: layers behind which its later passes go on."""
    how = "pending=4 features=@s shift=1 keep=@o"
    own = "state @o = track head layer=last\n"
    if block:
        how, own = "pending=5 features=@s levels=7 attend=block", ""
    elif drafted == BLOCK:
        how, own = "pending=4 features=@s shift=1 levels=3", ""
    if behind is not None:
        drafted, read = drafted.replace("cache=@hkv", f"layers=[{behind}:{behind}]"), "last"
    judge = "  %a = accept %c target=%l"
    if temperature:
        judge = "  %v = uniform 13 stream=accept\n  %a = accept %c target=%l rule=recursive by=%v"
    commits = ["kv", "s", "hkv", *(["o"] if own else [])]
    return parse_plan(
        f"plan heads\nmodel target\nmodel head\nassume temperature={temperature}\n"
        "state @kv = cache target\nstate @hkv = cache head\n"
        f"state @s = track target layer={read}\n{own}round decode {{\n  %t0 = root\n"
        f"  %q0 = forward head %t0 cache=@hkv {how}{drafted}\n"
        f"  %l = forward target %c cache=@kv pending=1 keep=@s\n{judge}\n  %e = emit %a\n"
        + "".join(f"  commit @{name} %e\n" for name in commits)
        + "}\n"
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder, VOCABULARY, scale=0.14, sureness=3.0)
    models = with_heads(load_pair(folder))
    for name in ("head", "flash"):
        teach(models[name])
    for name in ("clover", "clover2", "fspad", "amphista"):
        teach(models[name], 30)
    for name in ("chimera", "tandem"):
        teach(models[name], 20)
    return models


def teach(head: Drafter, rounds: int = 150) -> None:
    """Let a head learn a part of what its target says, so that some of its drafts are accepted."""
    requests = requests_of(0.0)
    outputs = plainly({"target": head.target}, requests)
    texts = [(*r.prompt_tokens, *out)[-10:] for r, out in zip(requests, outputs, strict=True)]
    tokens = torch.tensor(texts)
    features = text_features(head.target, Texts.alone(tokens), head.description.reads.layers)
    head.requires_grad_(True)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(rounds):
        losses = (
            functional.cross_entropy(
                logits[:, 1 : 9 - step].flatten(0, 1), tokens[:, 2 + step :].flatten()
            )
            for step, logits in enumerate(unrolled(head, tokens, features, 3))
        )
        optimiser.zero_grad()
        sum(losses, torch.zeros(())).backward()
        optimiser.step()
    head.requires_grad_(False)


def requests_of(temperature: float) -> list[Request]:
    prompts = ((3, 1, 4, 1, 5), (2,), (6, 0, 6, 0, 6, 0, 6, 0, 6), (1, 1))
    return [
        Request(prompt_tokens=one, max_new_tokens=9 + row, temperature=temperature, seed=row)
        for row, one in enumerate(prompts)
    ]


def check_alike(plan: Plan, models: dict[str, Any], temperature: float) -> None:
    """Op by op and as a graph as by the definition, all requests in one batch and one alone."""
    given, requests = {name: models[name] for name in ("target", "head")}, requests_of(temperature)
    defined = generate(OracleBackend().compile(plan, given), requests).completions
    expected = [(item.tokens, item.rounds) for item in defined]
    for compiled in (EagerBackend().compile, StaticExecutable):
        items = generate(compiled(plan, given), requests).completions
        assert [(item.tokens, item.rounds) for item in items] == expected
    assert in_batches(plan, given, requests[2:3], 1) == [defined[2].tokens]
    assert sum(item.rounds for item in defined) < sum(len(item.tokens) for item in defined)
    if not temperature:
        assert plainly(models, requests) == [item.tokens for item in defined]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("shape", SHAPES)
def test_rounds_of_a_head_are_those_of_the_definition(
    shape: str, temperature: float, models: dict[str, Any]
) -> None:
    check_alike(plan_of(SHAPES[shape], temperature), models, temperature)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rounds_of_a_block_drafter_are_those_of_the_definition(
    temperature: float, models: dict[str, Any]
) -> None:
    plan = plan_of(BLOCK, temperature, block=True)
    check_alike(plan, {**models, "head": models["flash"]}, temperature)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", ["clover", "clover2"])
def test_rounds_of_a_head_with_layers_along_the_text_are_those_of_the_definition(
    name: str, temperature: float, models: dict[str, Any]
) -> None:
    """Drafted tokens go on behind the layers: they are never in its cache."""
    given = {**models, "head": models[name]}
    for shape in (TREE, DYNAMIC) if temperature and name == "clover2" else (CHAIN,):
        plan = plan_of(shape, temperature, behind=given["head"].num_layers)
        check_alike(plan, given, temperature)


def test_a_prompt_that_a_head_reads_in_a_round_is_observed_by_itself(
    models: dict[str, Any],
) -> None:
    """Once, as wide as the text was; the pass that waited for it is as wide as every round's."""
    given = {"target": models["target"], "head": models["clover2"]}
    executable = EagerBackend().compile(plan_of(CHAIN, 0.0, behind=2), given)
    seen: list[tuple[str | None, int]] = []
    generate(
        executable, requests_of(0.0)[2:3],
        observer=lambda op, model, batch, width, context, seconds: seen.append((model, width)),
    )  # fmt: skip
    widths = [width for model, width in seen if model == "head"]
    assert [width for width in widths if width > 4] == [10]


def test_the_next_step_reads_the_second_state_of_a_head(models: dict[str, Any]) -> None:
    given = {**models, "head": models["fspad"]}
    check_alike(plan_of(DYNAMIC, 0.8, read="last"), given, 0.8)
    check_alike(plan_of(CHAIN, 0.0, read="last"), given, 0.0)


def test_the_last_tokens_of_a_path_ask_a_head(models: dict[str, Any]) -> None:
    """Three of them, of the text and of drafts alike; prompts of one token have fewer."""
    given = {**models, "head": models["chimera"]}
    check_alike(plan_of(TREE, 0.8, read="last"), given, 0.8)
    check_alike(plan_of(CHAIN, 0.0, read="last"), given, 0.0)


def test_a_small_model_attends_to_its_targets_states(models: dict[str, Any]) -> None:
    """Those of layers of their own along the text, and its own at drafted tokens."""
    given = {**models, "head": models["tandem"]}
    check_alike(plan_of(TREE, 0.8), given, 0.8)
    check_alike(plan_of(CHAIN, 0.0), given, 0.0)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_heads_that_attend_to_each_other_draft_in_one_pass(
    temperature: float, models: dict[str, Any]
) -> None:
    plan = plan_of(BLOCK, temperature, read="last")
    check_alike(plan, {**models, "head": models["amphista"]}, temperature)


def fresh_keys(head: Drafter, text: Sequence[int], block: bool) -> Tensor:
    """Keys of a head's first layer along a text, from the target's true states, `[H, T, D]`."""
    tokens = torch.tensor([text])
    features = text_features(head.target, Texts.alone(tokens), (1, 2))
    positions = torch.arange(len(text))[None]
    zero = torch.zeros_like(tokens)
    shift = 0 if block else 1
    entered = head.enter(tokens, positions, features.roll(shift, 1), positions >= shift, zero)
    store = Unrolled()
    causal = positions[:, :, None] >= positions[:, None]
    head.run(
        entered, positions, lambda _: additive_mask(causal, head.groups, head.dtype), store, (0, 1)
    )
    keys: Tensor = store.parts[0][0][0]
    return keys


def test_a_heads_cache_holds_true_states_after_every_round(models: dict[str, Any]) -> None:
    """After rounds that accept nothing, some and everything, of requests in one batch.

    Slots that were never written are NaN: nothing attends to them.
    """
    accepted = {count for shape in (*SHAPES, "block") for count in check_caches(shape, models)}
    assert accepted >= {0, 1, 2, 3}


def check_caches(shape: str, models: dict[str, Any]) -> set[int]:
    """How many tokens rounds accepted; the cache is looked at after each."""
    block = shape == "block"
    plan = plan_of(BLOCK if block else SHAPES[shape], 0.0, block=block)
    given = {**models, "head": models["flash"]} if block else models
    given = {name: given[name] for name in ("target", "head")}
    session = EagerBackend().compile(plan, given).start(requests_of(0.0))
    assert isinstance(session, EagerSession)
    cache = session.batch.caches["hkv"]
    for tensor in cache.store.keys:
        tensor.fill_(torch.nan)
    session.prefill()
    accepted, first_round = set[int](), True
    while not all(session.done):
        before, running = list(session.lengths), [not done for done in session.done]
        step = session.step("decode")
        accepted |= {len(row) - 1 for row, on in zip(step.tokens, running, strict=True) if on}
        for row, size in enumerate(cache.lengths[0, given["head"].num_layers]):
            first = 0 if block else 1
            keys = fresh_keys(given["head"], session.text(row), block)
            cached = cache.store.keys[0][row, :, first:size]
            # stock norms, which training runs, compute in float32
            torch.testing.assert_close(cached, keys[:, first:size], rtol=0, atol=2e-6)
            known = int(session.batch.tracks["s"].known[row].sum())
            assert known == session.lengths[row] - 1 or session.done[row]
            assert first_round or not running[row] or size == before[row] - block
        first_round = False
    return accepted
