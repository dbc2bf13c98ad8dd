"""Sizes that pricing infers are the sizes that the reference backend really runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

from specplan.backends.eager.backend import EagerBackend
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.memory.plan_memory import plan_memory
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.demands import round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, price_round
from specplan.ir.text.parser import parse_plan
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.dynamic_trees import dynamic_text
from tests.cost_models.rounds.test_pricing import LOOKUP, PLAIN
from tests.plan_texts import drafted, greedy_chain, judged
from tests.runtime.tiny_models import save_tiny

SAMPLED_TREE = drafted(
    """
  %t0 = root
  %q0 = forward draft %t0 cache=@dkv pending=2
  %u0 = uniform 3 stream=draft
  %t1 = grow %t0 at=%t0 logits=%q0 children=3 how=draw_distinct by=%u0
  %f1 = pick %t1 of=newest nodes=[0, 1]
  %q1 = forward draft %f1 cache=@dkv
  %u1 = uniform 3 stream=draft offset=3
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 1] how=draw_distinct by=%u1
""",
    judge=judged("recursive", 6),
)
PLANS = {
    "plain": PLAIN,
    "chain": greedy_chain(3),
    "lookup": LOOKUP,
    "sampled_tree": SAMPLED_TREE,
    "trees_by_request": dynamic_text(3, 3, 7),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: save_tiny("llama", root / name) for name in ("target", "draft")}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, CausalModel]:
    return {name: load_model(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def shapes(folders: dict[str, Path]) -> dict[str, ModelShape]:
    return {name: ModelShape.from_folder(folder, name=name) for name, folder in folders.items()}


def test_shape_and_loaded_model_agree(
    models: dict[str, CausalModel], shapes: dict[str, ModelShape]
) -> None:
    """A measured row finds its model again: digest and dtype are the same on both sides."""
    for name, model in models.items():
        assert model.digest == shapes[name].digest
        assert str(model.dtype).removeprefix("torch.") == shapes[name].dtype
        assert model.max_positions == shapes[name].max_positions


@pytest.mark.parametrize("kind", PLANS)
def test_priced_ops_are_the_ops_that_run(
    kind: str, models: dict[str, CausalModel], shapes: dict[str, ModelShape]
) -> None:
    text = PLANS[kind]
    plan = parse_plan(text) if isinstance(text, str) else text
    temperature = 0.8 if kind == "sampled_tree" else 0.0
    request = Request(prompt_tokens=(3, 5, 7, 5, 7), max_new_tokens=40, temperature=temperature)
    used = {name: models[name] for name in plan.models_run}
    session = EagerBackend().compile(plan, used).start([request, request])
    session.prefill()
    demands = round_demands(plan, plan.rounds[0])
    price = price_round(demands, RoundPricer(load_device("cpu-generic"), shapes, 2, 20), {})
    assert isinstance(price, RoundPrice)
    times: Counter[tuple[str, str | None]] = Counter()
    widths: Counter[tuple[str, str | None]] = Counter()
    for part in price.breakdown:
        if part.op != "round":
            times[part.op, part.model] += part.times
            widths[part.op, part.model] = max(widths[part.op, part.model], part.width)
    for _ in range(4):
        watch = Watch()
        session.step(plan.rounds[0].name, watch)
        assert watch.times == times
        for key, width in watch.widths.items():
            lag = 1 if key == ("forward", "draft") else 0
            assert widths[key] - lag <= width <= widths[key], key


class Watch:
    """An observer that counts ops and keeps the widest of each."""

    def __init__(self) -> None:
        self.times: Counter[tuple[str, str | None]] = Counter()
        self.widths: Counter[tuple[str, str | None]] = Counter()

    def __call__(
        self, op: str, model: str | None, batch: int, width: int, context: int, seconds: float
    ) -> None:
        self.times[op, model] += 1
        self.widths[op, model] = max(self.widths[op, model], width)


def test_replayed_chain_predicts_the_rounds_that_run(
    models: dict[str, CausalModel], shapes: dict[str, ModelShape]
) -> None:
    """The draft is the target itself: everything is accepted, rounds are ceil(N / 4)."""
    plan = greedy_chain(3)
    session = (
        EagerBackend()
        .compile(plan, models)
        .start([Request(prompt_tokens=(1, 2, 3), max_new_tokens=40)])
    )
    session.prefill()
    rounds = 0
    while not all(session.done):
        session.step("decode")
        rounds += 1
    profile = AcceptanceProfile(AcceptanceKey(Model("draft")), Ranks(((0,) * 40,)))
    estimate = Pricer(
        load_device("cpu-generic"), shapes, batch=1, prompt_tokens=3, output_tokens=40
    ).estimate(plan, profile)
    assert isinstance(estimate, Estimate)
    assert rounds == 10 == estimate.rounds.mean


def test_cache_bytes_are_those_allocated(
    models: dict[str, CausalModel], shapes: dict[str, ModelShape]
) -> None:
    plan = greedy_chain(3)
    session = (
        EagerBackend()
        .compile(plan, models)
        .start([Request(prompt_tokens=(1, 2, 3), max_new_tokens=40)] * 3)
    )
    parts = {part.name: part.bytes for part in plan_memory(plan, shapes, 3, 43).parts}
    for name, use in session.batch.caches.items():
        tensors = [*use.store.keys, *use.store.values]
        allocated = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        assert parts[f"cache @{name}"] == pytest.approx(allocated, rel=0.05)
