"""Drafts for a mixture of models: the output is that of the mixture, decoded token by token."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from specplan.ir.ops import Mix
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import discover_methods
from specplan.planner.methods.contrastive import ALPHA, BETA
from specplan.planner.methods.ensemble import EnsembleOptions
from specplan.planner.methods.speculative_cascade import ALPHA as DEFERRAL
from specplan.planner.templates.mixtures import MixedOptions
from specplan.runtime.laws import LAWS
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, plain, run, save_pair, save_shorter
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.planner.example_facts import example_facts

PLAIN = """plan mixture
model target
model {other}
assume law=stated
state @kv = cache target
state @okv = cache {other}
round decode {{
  %t = root
  %l = forward target %t cache=@kv pending=1
  %q = forward {other} %t cache=@okv pending=1
  %x = mix %l %q law={law}
  {draw}
  %a = accept %t target=%x {rule}
  %e = emit %a
  commit @kv %e
  commit @okv %e
}}
"""
METHODS = discover_methods()
CASES: dict[str, tuple[str, Any, str, str]] = {
    "contrastive": (
        "contrastive", MixedOptions("draft", 4), f"contrastive(beta={BETA}, alpha={ALPHA})",
        "draft"),
    "cascade": (
        "speculative_cascade", MixedOptions("draft", 4), f"cascade(alpha={DEFERRAL})", "draft"),
    "mean": ("ensemble", EnsembleOptions("draft", 4, "draft"), "average", "draft"),
    "mean of two targets": ("ensemble", EnsembleOptions("draft", 4, "second"), "average", "second"),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    """A target, its draft model, and a second target."""
    folder = tmp_path_factory.mktemp("mixtures")
    save_pair(folder, VOCABULARY, scale=0.3)
    save_shorter(folder, "second", 2)
    return {**load_pair(folder), "second": load_model(folder / "second", dtype="float64")}


@pytest.fixture(scope="module", params=[0.0, 0.8])
def facts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ProblemFacts:
    drafts = [{"name": name, "path": "draft"} for name in ("draft", "second")]
    return example_facts(
        tmp_path_factory.mktemp("problem"),
        temperature=request.param,
        models={"target": {"path": "target"}, "drafts": drafts},
    )


def mixed_alone(law: str, other: str, *, greedy: bool) -> Plan:
    """Decoding of the mixture without drafts."""
    rule, draw = ("", "") if greedy else ("rule=token by=%v", "%v = uniform 1 stream=accept")
    return parse_plan(PLAIN.format(other=other, law=law, rule=rule, draw=draw))


@every_case
def test_the_output_is_the_mixtures(
    name: str, models: dict[str, CausalModel], facts: ProblemFacts
) -> None:
    method, options, law, other = CASES[name]
    plan = METHODS[method].plan(facts, options)
    used = {role: models[role] for role in ("target", *plan.models_run)}
    alone = {"target": models["target"], other: models[other]}
    if facts.greedy:
        requests = [
            Request(prompt_tokens=(seed % 5, 1, seed // 5 % 5, 2), max_new_tokens=12)
            for seed in range(25)
        ]
        expected = run(mixed_alone(law, other, greedy=True), alone, requests)
        assert run(plan, used, requests) == expected
        assert expected != run(plain(), {"target": models["target"]}, requests)
        return
    mix = mixed_alone(law, other, greedy=True).rounds[0].ops[3]
    assert isinstance(mix, Mix)
    combine = partial(LAWS[mix.law.name].combine, **dict(mix.law.arguments))
    exact = law_of_texts(models["target"], [models[other]], combine)
    assert p_value(plan, used, exact, 1500) > 1e-4
    assert np.abs(exact - law_of_texts(models["target"])).sum() > 0.1  # which is not the target's
