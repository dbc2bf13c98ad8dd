"""Every public format of heads, from a checkpoint on: loaded, sized, priced, and decoded with.

`test_every_plan.py` decodes one head of each kind far; here is each format once.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, discover_methods
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, plainly, save_pair
from tests.planner.example_facts import HAZARDS, example_facts
from tests.runtime.heads import bodies, formats
from tests.runtime.heads.test_families import EAGLE3, PEAGLE

DRAFTED_BY = {
    **{f"eagle3 of {name}": (stored, "eagle3") for name, stored in EAGLE3.items()},
    "eagle": (formats.eagle1(), "eagle3"),
    "eagle of two layers": (formats.eagle1(layers=2), "eagle3"),
    "peagle": (PEAGLE, "block_drafter"),
    "dflash": (formats.dflash(), "block_drafter"),
    "medusa": (formats.medusa(), "parallel_heads"),
    "medusa of vllm": (formats.medusa("vllm", blocks=2), "parallel_heads"),
    "blockwise": (formats.blockwise(), "parallel_heads"),
    "cerberus": (formats.cerberus(), "parallel_heads"),
    "layers beside the last": (formats.parallel_layers(), "parallel_heads"),
    "hydra": (formats.hydra(), "stepwise_heads"),
    "mlp speculator": (formats.mlp_speculator(), "stepwise_heads"),
    "redrafter": (formats.redrafter(), "stepwise_heads"),
    "kangaroo": (formats.kangaroo(), "exit_adapter"),
    "look-ahead tokens": (formats.look_ahead_tokens(), "trained_slots"),
    "hidden transfer": (formats.hidden_transfer(), "trained_slots"),
    "bita": (formats.bita(layers=6), "trained_slots"),
    "streams": (formats.streams(layers=6), "trained_slots"),
    "fspad": (bodies.fspad(), "eagle3"),
    "amphista": (bodies.amphista(), "parallel_heads"),
    "tandem": (bodies.tandem(), "eagle3"),
    "chimera": (bodies.chimera(), "eagle3"),
    "clover": (bodies.clover(version=1), "eagle3"),
    "clover 2": (bodies.clover(), "eagle3"),
}  # fmt: skip
SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": formats.VOCABULARY,
}  # fmt: skip


class Plain(NamedTuple):
    """A target, requests at each temperature, and what it writes to them by itself."""

    target: CausalModel
    requests: list[Request]
    tokens: list[tuple[int, ...]]


@pytest.fixture(scope="module")
def decoding(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("target")
    save_pair(folder, formats.VOCABULARY, layers=6)
    target = load_model(folder / "target", dtype="float64")
    prompts = ((3, 1, 4, 1, 5), (2, 7), (5, 9, 5, 9, 5, 9, 5))
    requests = [
        Request(prompt_tokens=one, max_new_tokens=5 + row, temperature=0.0, seed=row)
        for row, one in enumerate(prompts)
    ]
    return Plain(target, requests, plainly({"target": target}, requests))


def plan_of(facts: ProblemFacts, method: str) -> tuple[Plan, Estimate]:
    """A plan of up to three drafted tokens, and its price."""
    one = discover_methods()[method]
    family = one.choices(facts)[0]
    assert isinstance(family, Family), family
    plan = one.plan(facts, [*islice(family.settings, 3)][-1])
    sizes: dict[str, Any] = {"batch": 1, "prompt_tokens": 40, "output_tokens": 32}
    priced = Pricer(facts.device, facts.shapes, **sizes).estimate(
        plan, facts.profiles[Model("head")]
    )
    assert isinstance(priced, Estimate), priced
    return plan, priced


@pytest.mark.parametrize("case", DRAFTED_BY)
def test_a_format_is_loaded_priced_and_decoded_with(
    case: str, decoding: Plain, tmp_path: Path
) -> None:
    stored, method = DRAFTED_BY[case]
    head = load_head(stored.save(tmp_path / "head"), decoding.target)
    head.pack()
    profile = AcceptanceProfile.from_hazards(
        HAZARDS, key=AcceptanceKey(Model("head"), temperature=0.0, how="best"), trials=1000
    )
    drafts = [{"name": "head", "path": "head"}]
    facts = example_facts(  # compares the tensors' sizes with those that are priced
        tmp_path, given={Model("head"): profile}, target=SIZES, methods=["autoregressive", method],
        models={"target": {"path": "target"}, "drafts": drafts},
    )  # fmt: skip
    models = {"target": decoding.target, "head": head}
    plan, priced = plan_of(facts, method)
    assert {"target", "head"} <= {part.model for part in priced.breakdown}
    assert in_batches(plan, models, decoding.requests, 3) == decoding.tokens
