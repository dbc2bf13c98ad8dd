"""What the interpreter cannot run it refuses by name; what it can run is data."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.registry import backend_capabilities, backend_names, get_backend
from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.capabilities import refusals, require_support
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.requests import Request
from tests.backends.pairs import load_pair, plain
from tests.ir.plans_on_disk import plan_of


def test_what_does_not_run_is_refused_by_op_and_attribute() -> None:
    """Of written plans eager runs all (`eager/test_written_plans.py`), and a graph not this one."""
    plan = plan_of("prompt_chunks")
    assert any("most may only be unset" in str(item) for item in refusals(plan, STATIC))
    with pytest.raises(MissingCapabilityError, match=r"backend static cannot run.*specplan"):
        require_support(plan, STATIC)


def test_backends_are_found_by_name() -> None:
    for name in backend_names():
        assert get_backend(name).capabilities == backend_capabilities(name)
        missing = get_backend(name).available()
        assert missing is None or (name == "tensorrt" and "needs" in missing)
    with pytest.raises(UsageError, match="no backend is called 'tpu'"):
        get_backend("tpu")


def test_wrong_models_and_requests(pair_folder: Path) -> None:
    models = load_pair(pair_folder)
    chain = plan_of("draft_chain")
    with pytest.raises(UsageError, match="no model is given for draft"):
        EagerBackend().compile(chain, {"target": models["target"]})
    executable = EagerBackend().compile(plain(), models)
    with pytest.raises(UsageError, match="at least one request"):
        executable.start([])
    with pytest.raises(UsageError, match=r"request 0: .*160 positions"):
        executable.start([Request(prompt_tokens=(1,) * 100, max_new_tokens=61)])
    with pytest.raises(UsageError, match="outside the vocabulary of 61"):
        executable.start([Request(prompt_tokens=(61,))])
    with pytest.raises(UsageError, match="made for temperature 0"):
        executable.start([Request(prompt_tokens=(1,), max_new_tokens=4, temperature=0.5)])
