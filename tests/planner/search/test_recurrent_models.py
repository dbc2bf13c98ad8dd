"""Hybrids with recurrent states as target and draft model: plans, prices, and memory by request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.engines.registry import open_table
from specplan.cost_models.memory.plan_memory import plan_memory, speculative_slots
from specplan.cost_models.memory.runtime import EAGER
from specplan.cost_models.models.forward import forward_ops
from specplan.ir.ops import Forward
from specplan.ir.plan import CacheState, walk_plan
from specplan.notebook.problem import Problem
from specplan.planner.search.comparing import score
from specplan.planner.search.limits import unsupported
from specplan.planner.search.search import replaying
from specplan.result import Result
from tests.ir.plans_on_disk import plan_of
from tests.planner.big_models import write_hybrids


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hybrids(tmp_path_factory.mktemp("hybrids"))


def optimize(models: Path, **settings: Any) -> Result:
    problem = Problem(
        target=models / "target",
        drafts={"draft": models / "draft"},
        device="4xh100-sxm",
        prompt=1024,
        output=512,
        **{"batch": [1, 16], **settings},
    )
    return problem.assume(draft=0.8).optimize()


def test_drafting_pays_and_the_plan_says_how_states_go_back(models: Path) -> None:
    result = optimize(models, backend="eager")
    chosen = result.search.chosen
    assert chosen.method == "draft_model"
    caches = [state for state in chosen.plan.states if isinstance(state, CacheState)]
    assert {state.model: state.rollback for state in caches} == {
        "target": "snapshot",
        "draft": "snapshot",
    }
    gain = score(result.search.plain, "latency") / score(chosen, "latency")
    assert 1.2 < gain < 2.5


def test_states_take_memory_by_request_and_not_by_token(models: Path) -> None:
    """One for the root, each drafted node, and four more in the interpreter; 306 MB each."""
    result = optimize(models, backend="eager")
    plan, shapes = result.search.chosen.plan, result.search.facts.shapes
    state = 72 * (32 * 128 * 256 + 3 * (4096 + 2 * 2 * 256)) * 4
    assert shapes["target"].state_bytes == state
    for requests, text in ((1, 1000), (3, 1000), (3, 100_000)):
        memory = plan_memory(plan, shapes, requests, text, 1000, EAGER)
        parts = {part.name: part.bytes for part in memory.parts}
        assert parts["states of @kv"] == requests * (speculative_slots(plan) + 4) * state
        # 72 layers, 4 KV heads of 128, keys and values in bfloat16
        slots = text + speculative_slots(plan) + 1
        assert parts["cache @kv"] == requests * slots * 72 * 2 * 4 * 128 * 2


def test_a_cache_of_a_part_of_the_text_is_refused(models: Path) -> None:
    facts = optimize(models, backend="none").search.facts
    small = plan_of("self_draft_view")
    assert unsupported(facts, small) is None
    reason = unsupported(facts, small.with_snapshots({"target"}))
    assert reason is not None and "the recurrent state of target is of all of it" in reason


def test_large_batches_replay_what_was_accepted(models: Path) -> None:
    """A state is read and stored once per request and pass, not stored for each of four nodes."""
    result = optimize(models, backend="eager", batch=[96])
    plan, facts = result.search.chosen.plan, result.search.facts
    assert facts.replays and plan is not None
    assert {state.model: state.rollback for state in plan.caches} == {
        "target": "replay",
        "draft": "snapshot",
    }
    (judging,) = [op for op in walk_plan(plan) if isinstance(op, Forward) and op.model == "target"]
    drafted = result.search.chosen.estimate.tokens_per_round.mean  # type: ignore[union-attr]
    assert 1.0 < drafted <= judging.pending, "the root, and all drafted tokens, may run again"
    target = facts.shapes["target"]
    one = replace(target, replays=True)
    state = 32 * 128 * 256 + 3 * (4096 + 2 * 2 * 256)
    for shape, moved in ((target, 1 + 4), (one, 1 + 1)):
        (scan,) = [op for op in forward_ops(shape, 64, 4, 1000, 4) if op.name == "state_scan"]
        assert scan.cost.kv_bytes == 64 * moved * state * 4
    memory = {part.name: part.bytes for part in result.search.chosen.estimates[0].memory.parts}
    assert memory["states of @kv"] == 96 * target.state_bytes
    # What engines run stores a state for each token.
    assert replaying(replace(facts, capabilities=open_table("vllm"))) is None
    assert "running accepted tokens again" in str(open_table("vllm").refusals(plan)[0])
