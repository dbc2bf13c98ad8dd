"""Plans edited to each acceptance rule run, with the parameters that they give."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.ir import check_plan, parse_plan
from specplan.ir.plan import Plan
from specplan.ir.tables.acceptance import LOSSY, RULE_ENTRIES
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, plainly, run
from tests.ir.plans_on_disk import text_of

PROMPTS = [(3, 1, 4, 1, 5), (9, 2, 6), (5, 3, 5, 8, 9, 7, 9)]
LOSSY_NAMES = {rule.name for rule in LOSSY}


@pytest.fixture(scope="module")
def pair(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


def chain(rule: str, *, drawn: bool = True) -> Plan:
    """Four drafted tokens judged by a rule, written with its parameters."""
    text = text_of("draft_chain").replace("rule=token", f"rule={rule}")
    name = rule.partition("(")[0]
    declared = next(item for item in RULE_ENTRIES if item.name == name)
    if declared.uniforms_per_node is None:
        text = text.replace(" by=%v", "")
    if name in LOSSY_NAMES:
        text = text.replace("model target\n", "model target\nassume law=free\n")
    if not drawn:
        text = text.replace(" how=draw by=%u", "")
    return check_plan(parse_plan(text))


def requests(temperature: float) -> list[Request]:
    return [
        Request(prompt_tokens=prompt, max_new_tokens=16, temperature=temperature, seed=seed)
        for seed, prompt in enumerate(PROMPTS)
    ]


SAMPLED = [r.name for r in RULE_ENTRIES if r.needs_logits and r.lossless != "greedy"]


@pytest.mark.parametrize("rule", SAMPLED)
def test_every_rule_runs_in_a_plan(rule: str, pair: dict[str, CausalModel]) -> None:
    assert [len(tokens) for tokens in run(chain(rule), pair, requests(0.8))] == [16] * 3
    if rule not in LOSSY_NAMES:
        assert run(chain(rule), pair, requests(0.0)) == plainly(pair, requests(0.0))


def test_parameters_reach_the_rule(pair: dict[str, CausalModel]) -> None:
    greedy = plainly(pair, requests(0.0))
    assert run(chain("top_beta(beta=1)", drawn=False), pair, requests(0.0)) == greedy
    assert run(chain("rollback(threshold=0)", drawn=False), pair, requests(0.0)) == greedy
    token = run(chain("token"), pair, requests(0.8))
    assert run(chain("lenient(lenience=1.0)"), pair, requests(0.8)) == token
    assert run(chain("lenient(lenience=0.001)"), pair, requests(0.8)) != token


def test_a_rule_that_lets_all_pass_emits_what_the_draft_says(pair: dict[str, CausalModel]) -> None:
    alone = plainly({"target": pair["draft"]}, requests(0.0))
    outputs = run(chain("rollback(threshold=1000.0)", drawn=False), pair, requests(0.0))
    assert [tokens[:4] for tokens in outputs] == [tokens[:4] for tokens in alone]
    assert outputs != plainly(pair, requests(0.0))
