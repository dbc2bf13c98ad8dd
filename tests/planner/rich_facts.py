"""Facts in which every method has something to offer: drafters of all forms, all sources."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from specplan.cost_models.acceptance.drafters import Drafter, Drawn, Model, SmallCache
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import discover_methods
from tests.planner.example_facts import (
    HAZARDS,
    REHEARSED,
    SHARED,
    SIXTY_EIGHT_MILLION,
    SOURCES,
    example_facts,
    measured_profiles,
    profiles,
    source_profiles,
    with_blocks,
)
from tests.planner.trained_exits import write_exits

SIZES = {
    "hidden_size": 2048,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
}
TARGET: dict[str, Any] = SIZES | {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "num_hidden_layers": 12,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 1024,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
"""Sizes of GLM-4.5's kind, one multi-token-prediction module, 12 layers."""
HEAD: dict[str, Any] = {**SHARED, **SIZES} | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "draft_vocab_size": 8000,
    "dtype": "bfloat16",
}
BLOCK: dict[str, Any] = {**SHARED, **SIZES} | {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "block_size": 8,
    "dflash_config": {"mask_token_id": 31999},
    "dtype": "bfloat16",
}


PARALLEL: dict[str, Any] = {**SHARED, **SIZES} | {"medusa_num_heads": 5, "dtype": "bfloat16"}
BESIDE: dict[str, Any] = {**SHARED, **SIZES} | {
    "n_future_tokens": 4, "num_hidden_layers": 3, "dtype": "bfloat16",
}  # fmt: skip
ADAPTER: dict[str, Any] = {**SHARED, **SIZES} | {
    "model_type": "kangaroo", "exit_layer": 2, "num_hidden_layers": 1, "dtype": "bfloat16",
}  # fmt: skip
STEPWISE: dict[str, Any] = {**SHARED, **SIZES} | {"hydra_num_heads": 4, "dtype": "bfloat16"}
SLOTS: dict[str, Any] = {**SHARED, **SIZES} | {"num_look_ahead_tokens": 3, "dtype": "bfloat16"}
STORE: dict[str, Any] = {**SHARED, **SIZES} | {
    "num_neighbours": 64, "num_states": 5000, "state_layer": 11,
}  # fmt: skip


def write_drafter(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


HEADS = tuple(map(Model, ("head", "flash", "heads", "beside", "adapter", "steps", "slots", "mtp")))


def drafter_profiles(temperature: float = 0.0) -> dict[Drafter, AcceptanceProfile]:
    """Profiles of what cannot be measured here, from hazards of 1000 trials."""
    given: dict[str, Any] = {"temperature": temperature}
    keys: dict[Drafter, AcceptanceKey] = {
        name: AcceptanceKey(name, how="best", **given) for name in HEADS
    }
    if temperature:
        for name in HEADS:
            drawn = Drawn(name.name)
            keys[drawn] = AcceptanceKey(drawn, how="draw_distinct", **given)
    by_head = SmallCache("target", 256, "by_head", ("head.0.1",))
    for name in (SmallCache("target", 512), SmallCache("draft", 256), by_head):
        keys[name] = AcceptanceKey(name, how="draw" if temperature else "best", **given)
    by_drafter = {
        name: AcceptanceProfile.from_hazards(HAZARDS, key=key, trials=1000)
        for name, key in keys.items()
    }
    return by_drafter | source_profiles(temperature)


def rich_facts(
    folder: Path,
    *,
    temperature: float = 0.0,
    target_changes: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> ProblemFacts:
    """A mixture of experts with a module of its own, a draft model, a head and a block drafter."""
    write_drafter(folder / "head", HEAD)
    write_drafter(folder / "flash", BLOCK)
    write_drafter(folder / "heads", PARALLEL)
    write_drafter(folder / "beside", BESIDE)
    write_drafter(folder / "adapter", ADAPTER)
    write_drafter(folder / "steps", STEPWISE)
    write_drafter(folder / "slots", SLOTS)
    write_drafter(folder / "neighbours", STORE)
    write_drafter(folder / "corpus", {})
    for name in ("datastore.json", "trees.npz"):
        (folder / "corpus" / name).write_text("{}")
    lines = ("\t".join(["0.3"] * 6 + ["0.97"] * 6) for _ in range(40))
    (folder / "exits.tsv").write_text("\n".join(lines))
    if not (folder / "policy").exists():
        write_exits(folder / "policy", "policy", (3, 6, 9), TARGET["hidden_size"])
    names = ("draft", "head", "flash", "heads", "beside", "adapter", "steps", "slots", "neighbours")
    given = profiles(temperature == 0.0, temperature=temperature) | drafter_profiles(temperature)
    settings: dict[str, Any] = {
        "given": given,
        "models": {
            "target": {"path": "target"},
            "drafts": [{"name": name, "path": name} for name in names],
        },
        "sources": ["prompt_lookup", "mtp", *SOURCES, *REHEARSED],
        "datastore": "corpus",
        "token_exits": "exits.tsv",
        "exit_policy": "policy",
        "workload": {"answer_trigger": [5, 6]},
    }
    sources = set((settings | changes)["sources"])
    settings["methods"] = [
        name for name, method in discover_methods().items() if set(method.sources) <= sources
    ]
    facts = example_facts(
        folder,
        temperature=temperature,
        target=TARGET | dict(target_changes),
        draft=SIXTY_EIGHT_MILLION,
        constrained=True,
        **(settings | changes),
    )
    if "given" in changes:
        return facts
    measured = measured_profiles(facts)
    return with_blocks(replace(facts, profiles={**facts.profiles, **measured}))


@cache
def usual_facts(temperature: float) -> ProblemFacts:
    """`rich_facts` for whoever changes nothing, in a folder of the process: they take seconds."""
    return rich_facts(Path(_home().name) / str(temperature), temperature=temperature)


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()
