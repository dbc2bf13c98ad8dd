"""What the reference backend cannot run it refuses by name; what it can run is data."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.backends.reference.backend import ReferenceBackend
from specplan.backends.registry import backend_capabilities, backend_names, get_backend
from specplan.ir.capabilities import refusals
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.parser import parse_plan
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, plain

PLANS = Path(__file__).parent.parent / "ir" / "plans"
RUNNABLE = {
    "draft_chain", "static_tree", "prompt_lookup", "schedule", "autoregressive",
    "early_exit_verified", "token_recycling", "staged",
    "jacobi_blocks", "lookahead", "self_draft_view", "merged_trees", "fallback_rollback",
    "skipped_layers",
}  # fmt: skip
REASONS = {
    "expand_rerank": "state @h",
    "growing_tree": "keep may only be",
    "early_exit_confident": "kind may only be",
    "sparse_cache_hierarchy": "lacks what was kept of the chain before",
    "prompt_chunks": "most may only be unset",
}


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.plan")), ids=lambda path: path.stem)
def test_plans_run_or_are_refused_by_name(path: Path) -> None:
    found = refusals(parse_plan(path.read_text()), backend_capabilities("reference"))
    assert (not found) == (path.stem in RUNNABLE), found
    if path.stem in REASONS:
        assert any(REASONS[path.stem] in str(item) for item in found), found


def test_compile_names_op_backend_and_remedy() -> None:
    plan = parse_plan((PLANS / "heads.plan").read_text())
    with pytest.raises(MissingCapabilityError, match=r"backend reference cannot run.*specplan"):
        ReferenceBackend().compile(plan, {})


def test_backends_are_found_by_name() -> None:
    for name in backend_names():
        assert get_backend(name).capabilities == backend_capabilities(name)
        assert get_backend(name).available() is None
    with pytest.raises(UsageError, match="no backend is called 'tpu'"):
        get_backend("tpu")


def test_wrong_models_and_requests(pair_folder: Path) -> None:
    models = load_pair(pair_folder)
    chain = parse_plan((PLANS / "draft_chain.plan").read_text())
    with pytest.raises(UsageError, match="no model is given for draft"):
        ReferenceBackend().compile(chain, {"target": models["target"]})
    executable = ReferenceBackend().compile(plain(), models)
    with pytest.raises(UsageError, match="at least one request"):
        executable.start([])
    with pytest.raises(UsageError, match=r"request 0: .*160 positions"):
        executable.start([Request(prompt_tokens=(1,) * 100, max_new_tokens=61)])
    with pytest.raises(UsageError, match="outside the vocabulary of 61"):
        executable.start([Request(prompt_tokens=(61,))])
    with pytest.raises(UsageError, match="made for temperature 0"):
        executable.start([Request(prompt_tokens=(1,), max_new_tokens=4, temperature=0.5)])
