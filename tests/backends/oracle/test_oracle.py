"""The oracle runs whatever verifies, and what it runs is what plans promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specplan.backends.oracle.backend import OracleBackend
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from specplan.runtime.sources.datastore_build import build_datastore
from specplan.runtime.sources.trees import build_trees
from tests.backends.eager.generated_case import alone
from tests.backends.many_plans import GENERATED, LEDGER, PLANS, small
from tests.backends.oracle.roles import VOCABULARY, models_of
from tests.ir.generated.plans import generated_plan
from tests.ir.layered_plans import SOUND
from tests.matrix import sized
from tests.plan_texts import drafted

GENERATED_PLANS = sized(50, 1000)
"""Generated plans that are decoded; all 1,000 are where the language changes."""


def elsewhere(case: Any, runs: bool) -> Any:
    """A case of the long matrix where the interpreter runs the plan.

    `tests/backends/eager` holds the oracle to plain decoding on those, with other models.
    """
    return pytest.param(case, marks=pytest.mark.long) if runs else case


COMPOSITIONS = {
    "prune, then grow": """
  %q0 = forward draft %t0 cache=@dkv pending=9
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %b = pick %t1 of=all best=2
  %p = prune %t1 to=%b
  %q1 = forward draft %p cache=@dkv
  %f = pick %p of=leaves
  %c = grow %p at=%f logits=%q1
""",
    "graft, then grow": """
  %q0 = forward draft %t0 cache=@dkv pending=9
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %r = root
  %d = lookup @text %r at=%r match=[1, 3] length=2
  %g = graft %t1 %d same=merge
  %q1 = forward draft %g cache=@dkv
  %f = pick %g of=newest
  %c = grow %g at=%f logits=%q1
""",
    "draw below the best two": """
  %q0 = forward draft %t0 cache=@dkv pending=9
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f = pick %t1 of=newest best=2
  %q1 = forward draft %f cache=@dkv
  %u = uniform 2 stream=d
  %c = grow %t1 at=%f logits=%q1 how=draw by=%u
""",
    "look up below three leaves": """
  %q0 = forward draft %t0 cache=@dkv pending=9
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f = pick %t1 of=newest
  %c = lookup @text %t1 at=%f match=[1, 3] length=2
""",
    "two continuations of the text": """
  %c = lookup @text %t0 at=%t0 match=[1, 3] length=2 children=2
""",
    "continuations of the text, merged": """
  %c = lookup @text %t0 at=%t0 match=[1, 3] length=3 children=2 nodes=4
""",
    "prune to the worst": """
  %q0 = forward draft %t0 cache=@dkv pending=9
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %b = pick %t1 of=all worst=2
  %c = prune %t1 to=%b
""",
    "keep the best of those grown": """
  %q0 = forward draft %t0 cache=@dkv pending=9
  %c = grow %t0 at=%t0 logits=%q0 children=4 keep=2
""",
    "a loop that stops early, then a lookup": """
  %x = repeat 4 (%t = %t0) {
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f logits=%q
    %m = measure %q top1
    %s = compute "m < 0.4" m=%m
    yield %n until=%s
  }
  %tip = pick %x of=leaves
  %c = lookup @text %x at=%tip match=[1, 3] length=4
""",
    "a draft model goes on after a lookup": """
  %g = lookup @text %t0 at=%t0 match=[1, 3] length=3
  %f = pick %g of=leaves
  %q = forward draft %g cache=@dkv pending=9
  %c = grow %g at=%f logits=%q
""",
}
"""Short, natural combinations of ops that no method writes."""


def composition(body: str) -> Plan:
    """A plan that drafts %c in some way, and verifies it."""
    return parse_plan(drafted(f"  %t0 = root{body}"))


def requests(temperature: float = 0.0, limit: int = 8) -> list[Request]:
    """Two requests with prompts of unlike lengths, which repeat themselves."""
    prompts = [np.random.default_rng(size).integers(0, VOCABULARY, size) for size in (4, 6)]
    return [
        Request(
            prompt_tokens=(*prompt.tolist(), *prompt.tolist()),
            max_new_tokens=limit,
            temperature=temperature,
            seed=seed,
        )
        for seed, prompt in enumerate(prompts)
    ]


def decoded(plan: Plan, models: dict[str, Any], temperature: float = 0.0) -> list[tuple[int, ...]]:
    """Tokens of `requests`, run as one batch."""
    executable = OracleBackend().compile(plan, models)
    return [one.tokens for one in generate(executable, requests(temperature)).completions]


def proves(plan: Plan) -> None:
    """The plan runs; where it promises the target's distribution, greedy output is the target's."""
    assert not verify_plan(plan)
    models = models_of(plan)
    tokens = decoded(plan, models)
    assert all(tokens)
    if plan.assumptions.lossless:
        assert tokens == decoded(alone(plan), models)
    if not plan.greedy_only:
        assert all(decoded(plan, models, 0.8))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what plans of a datastore read."""
    folder = tmp_path_factory.mktemp("stores")
    text = np.random.default_rng(0).integers(0, VOCABULARY, 4000).astype(np.uint8)
    for name in ("datastore", "groups", "crest"):
        build_datastore(folder / name, [lambda: [text]], VOCABULARY, "a text", lambda *_: None)
        build_trees(folder / name, 100)
    return folder


@pytest.fixture
def datastore(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans name the folders of datastores, from where they run."""
    monkeypatch.chdir(stores)


@pytest.mark.parametrize(
    "path",
    [elsewhere(path, path in LEDGER) for path in sorted(PLANS.rglob("*.plan"))],
    ids=lambda path: path.stem,
)
@pytest.mark.usefixtures("datastore")
def test_every_worked_plan_runs(path: Path) -> None:
    proves(small(path))


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_combinations_that_no_method_writes(name: str) -> None:
    proves(composition(COMPOSITIONS[name]))


@pytest.mark.parametrize("name", SOUND)
def test_rounds_that_run_parts_of_a_stack(name: str) -> None:
    proves(parse_plan(SOUND[name]))


@pytest.mark.parametrize(
    "number", [elsewhere(number, number in GENERATED) for number in range(GENERATED_PLANS)]
)
@pytest.mark.usefixtures("datastore")
def test_generated_plans_run(number: int) -> None:
    proves(generated_plan(number))
