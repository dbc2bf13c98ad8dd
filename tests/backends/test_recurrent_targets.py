"""Targets with recurrent layers: what was rejected leaves no trace in their states."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.graph_capabilities import STATIC
from specplan.cost_models.memory.plan_memory import MemoryPart, plan_memory
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.capabilities import require_support
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import Plan
from specplan.ir.rules.pending import with_replays
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.models.recurrent.states import SPARE, RecurrentCache
from specplan.runtime.requests import Request
from tests.backends.kinds import every_kind
from tests.backends.pairs import in_batches, plain
from tests.ir.plans_on_disk import plan_of
from tests.runtime.tiny_models import save_tiny

Models = dict[str, CausalModel]
PLANS = ("draft_chain", "static_tree", "prompt_lookup")


@pytest.fixture(scope="module", params=["mamba2", "falcon_h1", "qwen3_next"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a target lies."""
    place = tmp_path_factory.mktemp(request.param)
    save_tiny(request.param, place / "target")
    return place


@pytest.fixture(scope="module")
def models(folder: Path) -> Models:
    """The target, and the same with some noise, which drafts."""
    draft = transformers.AutoModelForCausalLM.from_pretrained(folder / "target")
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(0.05 * parameter.std(correction=0) * torch.randn_like(parameter))
    draft.save_pretrained(folder / "draft")
    return {name: load_model(folder / name, dtype="float64") for name in ("target", "draft")}


def requests(temperature: float) -> list[Request]:
    """Texts of many lengths; the later ones repeat themselves, so that lookups match."""
    return [
        Request(
            prompt_tokens=tuple((7 * i + 3 * (j % (3 + 2 * i))) % 61 for j in range(2 + 9 * i)),
            max_new_tokens=9 + i,
            seed=i,
            temperature=temperature,
        )
        for i in range(3)
    ]


def going_back(plan: Plan) -> Plan:
    return plan.with_snapshots(("target", "draft"))


@pytest.mark.parametrize("name", PLANS)
def test_tokens_are_those_of_plain_decoding(models: Models, name: str) -> None:
    """Greedy ones; drawn ones depend neither on the batch nor on how states go back."""
    plan = going_back(plan_of(name))
    replays = with_replays(plan)
    expected = in_batches(going_back(plain()), models, requests(0.0), 3)
    assert in_batches(plan, models, requests(0.0), 3) == expected
    assert in_batches(replays, models, requests(0.0), 3) == expected
    some = requests(0.9)[:2]
    drawn = in_batches(plan, models, some, 2)
    assert drawn == in_batches(plan, models, some, 1) == in_batches(replays, models, some, 2)


def test_drafts_may_be_replayed_by_every_model(models: Models) -> None:
    """Where several passes run drafted nodes, their states stay until the round ends."""
    plan = going_back(plan_of("draft_chain"))
    text = re.sub(r" pending=\d+", "", print_plan(plan).replace("snapshot", "replay"))
    some = requests(0.9)[:2]
    assert in_batches(parse_plan(text), models, some, 2) == in_batches(plan, models, some, 2)


def test_replays_store_no_states_of_drafts(models: Models) -> None:
    plan = with_replays(going_back(plan_of("draft_chain")))
    assert {state.model: state.rollback for state in plan.caches} == {
        "target": "replay",
        "draft": "snapshot",
    }
    assert with_replays(going_back(plain())) == going_back(plain()), "nothing is drafted"
    session = EagerBackend().compile(plan, models).start(requests(0.0)[-1:])
    cache = session.batch.caches["kv"].store
    assert isinstance(cache, RecurrentCache) and cache.places == SPARE


@pytest.mark.long
def test_tokens_of_every_kind(models: Models, tmp_path: Path) -> None:
    some = requests(0.0)
    expected = in_batches(going_back(plain()), models, some, 1)
    for name, plan in every_kind(tmp_path, 0.0, 1):
        snapshots = going_back(plan)
        replays = with_replays(snapshots)
        assert in_batches(snapshots, models, some, 3) == expected, name
        assert replays == snapshots or in_batches(replays, models, some, 3) == expected, name


class Passes(TorchDispatchMode):
    """Counts operations that read or write as many numbers as a state has."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.count = size, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        sizes = [one.numel() for one in (*args, output) if isinstance(one, torch.Tensor)]
        self.count += self.size in sizes and not func.is_view
        return output


def test_drafts_are_accepted_and_states_are_few(models: Models, folder: Path) -> None:
    """A state for each drafted node and a few more, however long the text is."""
    plan, some = going_back(plan_of("draft_chain")), requests(0.0)[-1:]
    executable = EagerBackend().compile(plan, models)
    output = generate(executable, some).completions[0]
    assert 1.2 < len(output.tokens) / output.rounds < 5.0, "some are accepted, some rejected"
    session = executable.start(some)
    cache = session.batch.caches["kv"].store
    assert isinstance(cache, RecurrentCache)
    assert cache.places == session.batch.speculative + SPARE < len(some[0].prompt_tokens)
    assert all(one.shape[1] == cache.places + 1 for layer in cache.states for one in layer)
    for layer, (keys, shapes) in enumerate(zip(cache.keys, cache.states, strict=True)):
        assert keys.numel() or shapes, f"layer {layer} has keys or a state"
    states = sum(one.nbytes for layer in cache.states for one in layer)
    assert states == cache.batch * (cache.places + 1) * models["target"].state_bytes
    shape = ModelShape.from_folder(folder / "target", "float64")
    assert shape.state_bytes == models["target"].state_bytes
    parts = plan_memory(plan, {"target": shape, "draft": shape}, 1, 100).parts
    assert MemoryPart("states of @kv", states) in parts


def test_operations_of_a_token_are_those_that_are_priced(models: Models, folder: Path) -> None:
    """Passes over all of a state that one token makes."""
    mixer: Any = models["target"].family.mixers[0]  # type: ignore[attr-defined]
    states = [torch.zeros(2, *one, dtype=torch.float64) for one in mixer.shapes]
    shape = ModelShape.from_folder(folder / "target")
    priced = next(layer.mixer for layer in shape.layers if layer.mixer is not None)
    width = priced.channels + priced.rates * priced.heads
    with Passes(states[1].numel()) as passes:
        mixer._step(torch.ones(2, width, dtype=torch.float64), states)
    assert passes.count == priced.operations


def test_requests_that_join_later_begin_without_a_state(models: Models) -> None:
    executable = EagerBackend().compile(going_back(plan_of("draft_chain")), models)
    some = requests(0.9)
    alone = [generate(executable, [one]).completions[0].tokens for one in some]
    session = executable.start(some[:2], capacity=64)
    session.prefill()
    for _ in range(2):
        session.step("decode")
    session.exchange([0], some[2:3])
    session.prefill()
    while not all(session.done):
        session.step("decode")
    assert tuple(session.text(1)[len(some[2].prompt_tokens) :]) == alone[2]
    assert tuple(session.text(0)[len(some[1].prompt_tokens) :]) == alone[1]


def test_what_cannot_go_back_is_refused(models: Models) -> None:
    chain = plan_of("draft_chain")
    with pytest.raises(MissingCapabilityError, match="@kv is a cache of target with recurrent"):
        EagerBackend().compile(chain, models)
    with pytest.raises(MissingCapabilityError, match="rollback may only be unset"):
        require_support(going_back(chain), STATIC)
    require_support(chain, STATIC)
