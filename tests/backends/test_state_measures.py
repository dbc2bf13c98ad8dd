"""Measures of hidden states: what they are, and the same tokens in every backend."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend
from specplan.backends.ops.measure import logistic, saturation
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import Entry
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import outputs
from tests.backends.pairs import load_pair, plain, run, save_pair

PLAN = """plan exits
model target
assume law=free
state @kv = cache target
state @x1 = track target layer=1
state @x2 = track target layer=2
round decode {{
  %t = root
  %g = forward target %t cache=@kv pending=1 layers=[0:1] keep=@x1 gives=[states]
  %s, %h = forward target %t cache=@kv pending=1 layers=[1:2] features=@x1 keep=@x2 gives=[logits, states]
  %c = measure %h {measure}
  %b = measure @kv lag(layers=2:3)
  %go = compute "c < {bar} or b >= 5" c=%c b=%b
  %l = when %go otherwise=[%s] {{
    %d = forward target %t cache=@kv pending=6 layers=[2:3] features=@x2
    yield %d
  }}
  %v = uniform 1 stream=accept
  %a = accept %t target=%l rule=token by=%v
  %e = emit %a
  commit @kv %e
  commit @x1 %e
  commit @x2 %e
}}
"""  # noqa: E501
WEIGHTS = tuple(round(0.3 * (-1) ** i / (1 + i % 5), 3) for i in range(32))
MEASURES = {
    "saturation beside=%g": 0.7,
    f"logistic(weights={list(WEIGHTS)}, bias=0.25)": 0.5,
    "logistic(weights=[1.5, -2.0, 0.5])": 0.5,
}
"""With a bar that about half of the tokens reach."""


def test_they_are_the_cosine_and_a_linear_classifier() -> None:
    one, other = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1)).unbind(0)
    cosine = torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=-1)
    torch.testing.assert_close(saturation(one, other), cosine)
    entry = Entry("logistic", (("weights", WEIGHTS), ("bias", 0.25)))
    scaled = torch.nn.functional.rms_norm(one.double(), (32,), eps=0.0)
    expected = torch.sigmoid(scaled @ torch.tensor(WEIGHTS, dtype=torch.float64) + 0.25)
    torch.testing.assert_close(logistic(one, entry), expected)
    torch.testing.assert_close(logistic(7 * one, entry), expected)
    assert logistic(torch.zeros(1, 32), entry).item() == pytest.approx(0.5621765)
    with pytest.raises(UsageError, match="32 weights, and the states 8 entries"):
        logistic(one[:, :8], entry)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("exits")
    save_pair(folder, 29)
    return load_pair(folder)


@pytest.mark.parametrize("measure", MEASURES)
def test_oracle_eager_and_graphs_leave_at_the_same_tokens(
    measure: str, models: dict[str, CausalModel]
) -> None:
    """At bars that admit no exit these are the target's own."""
    prompts = [tuple((5 * i + 3 * j) % 29 for j in range(3 + i)) for i in range(4)]
    asked = [
        Request(prompt_tokens=prompt, max_new_tokens=10, temperature=0.9 * (i % 2), seed=i)
        for i, prompt in enumerate(prompts)
    ]
    plan = parse_plan(PLAN.format(measure=measure, bar=MEASURES[measure]))
    assert verify_plan(plan) == () == refusals(plan, STATIC)
    defined = outputs(OracleBackend().compile(plan, models), asked)
    assert outputs(EagerBackend().compile(plan, models), asked) == defined
    assert outputs(StaticExecutable(plan, models), asked) == defined
    passes: list[str] = []
    executable = EagerBackend().compile(plan, models)
    for one in asked:
        generate(executable, [one], observer=lambda op, *rest: passes.append(op))
    lower, deep = (sum(op.startswith(f"forward:{n}") for op in passes) for n in (1, 2))
    assert 0.3 * lower < deep < 0.9 * lower, "some tokens leave, and some do not"
    whole = parse_plan(PLAN.format(measure=measure, bar=1.1))
    greedy = [one for one in asked if not one.temperature]
    assert run(whole, models, greedy) == run(plain(), models, greedy)


@pytest.mark.long
def test_compiled_graphs_too(tmp_path: Path) -> None:
    save_pair(tmp_path, 29)
    models = load_pair(tmp_path, dtype="float32")
    asked = [Request(prompt_tokens=(3, 1, 4, 1, 5), max_new_tokens=12)]
    (similar, bar), (classified, _), _ = MEASURES.items()
    text = PLAN.format(measure=f"{similar}\n  %p = measure %h {classified}", bar=bar)
    plan = parse_plan(text.replace("or b", "and p < 0.6 or b").replace("b=%b", "b=%b p=%p"))
    compiled = OnnxRuntimeBackend().compile(plan, models)
    assert outputs(compiled, asked) == outputs(EagerBackend().compile(plan, models), asked)


BROKEN = {
    "%c = measure %h margin": "takes logits; h is states",
    "%c = measure %s saturation beside=%g": "takes states; s is logits",
    "%c = measure %h saturation": "needs beside=",
    "%c = measure %h logistic(weights=[1.0]) beside=%g": "takes no beside=",
    "%c = measure %h saturation beside=%s": "is logits, not states",
    "%c = measure %h logistic(weights=[a])": "a list of numbers",
}


@pytest.mark.parametrize("line", BROKEN)
def test_what_no_measure_reads_is_refused(line: str) -> None:
    text = PLAN.format(measure="saturation beside=%g", bar=0.5)
    broken = parse_plan(text.replace("%c = measure %h saturation beside=%g", line))
    assert any(BROKEN[line] in str(finding) for finding in verify_plan(broken))


def test_states_are_no_logits() -> None:
    text = PLAN.format(measure="saturation beside=%g", bar=0.5)
    (finding, *_) = verify_plan(parse_plan(text.replace("target=%l", "target=%h")))
    assert "%h is states, not logits" in str(finding)
