"""Plans of every family of every method that runs: one of each kind, or some settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.same_ops import kinds, nodes_of
from specplan.cost_models.acceptance.drafters import Drawn, SmallCache
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.rounds.stopping import stopping_loops
from specplan.ir.plan import Plan
from specplan.planner.drafters.candidates import possible_drafters
from specplan.planner.drafters.gates import write_gates
from specplan.planner.drafters.token_exits import write_token_exits
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, discover_methods
from specplan.planner.templates.exits import exit_depths
from specplan.runtime.sources.datastore_build import build_datastore
from specplan.runtime.sources.trees import build_trees
from tests.planner.example_facts import (
    SEVEN_BILLION,
    example_facts,
    source_profiles,
    with_blocks,
)
from tests.planner.rich_facts import (
    ADAPTER,
    BESIDE,
    BLOCK,
    HEAD,
    HEADS,
    PARALLEL,
    SLOTS,
    STEPWISE,
    STORE,
    drafter_profiles,
    write_drafter,
)
from tests.planner.trained_exits import write_exits

EVERY_WAY = frozenset({
    "autoregressive", "draft_model", "dynamic_tree", "early_exit", "layer_skip", "prompt_lookup",
})  # fmt: skip
"""Methods that between them use every way of drafting and judging without a declared source."""
DRAFTERS: dict[str, dict[str, Any]] = {
    "head": HEAD | {"eagle_aux_hidden_state_layer_ids": [1, 2]},
    "flash": BLOCK | {"dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]}},
    "heads": PARALLEL | {"medusa_num_heads": 3},
    "beside": BESIDE,
    "adapter": ADAPTER | {"exit_layer": 1},
    "steps": STEPWISE | {"hydra_num_heads": 3},
    "slots": SLOTS | {"transfer_layer": 1, "stream_rank": 5, "adapter_rank": 2},
    "neighbours": STORE | {"state_layer": 2},
}
"""Heads by role; `tests.backends.heads` has models for them."""
RUNNABLE = {name: method for name, method in discover_methods().items() if method.runnable}
LOSSLESS = {name: method for name, method in RUNNABLE.items() if method.lossless}
WIDTH = 32
"""Hidden size of the target of `tests.backends.pairs`."""
SMALL_BUDGET = 20
"""Cached tokens of drafters that forget what tests write."""


class Kind(NamedTuple):
    """A plan, the setting that it is of, and whether anything is drafted in it."""

    words: str
    plan: Plan
    drafts: bool


def all_facts(
    folder: Path,
    temperature: float,
    vocabulary: int = 5,
    corpus: Sequence[int] = tuple(Path(__file__).read_bytes()),
    layers: int = 3,
) -> ProblemFacts:
    """Facts in which every method that runs has something to offer, those offered by name too.

    A draft model, all sources, small caches, and a datastore of the corpus, whose tokens are folded
    onto the vocabulary. No width but the target's is a matter of a plan; `layers` is how many
    layers the target has.
    """
    text = (np.array(corpus) % vocabulary).astype(np.uint8)
    build_datastore(folder / "corpus", [lambda: [text]], vocabulary, "a text", lambda *_: None)
    build_trees(folder / "corpus", 1000)
    gates = tuple(((layer * 7 % 5) / 5, 0.5) for layer in range(layers))
    write_gates(folder / "gates.tsv", gates)
    shares = np.random.default_rng(0).random((vocabulary, layers))
    write_token_exits(folder / "exits.tsv", np.maximum.accumulate(shares, axis=1))
    for kind in ("classifier", "policy"):
        write_exits(folder / kind, kind, exit_depths(layers), WIDTH)
    sizes = {key: SEVEN_BILLION[key] for key in SEVEN_BILLION if key != "num_hidden_layers"}
    sizes["hidden_size"] = WIDTH
    for name, config in DRAFTERS.items():
        write_drafter(folder / name, {**config, **sizes, "head_dim": 128})
    facts = example_facts(
        folder,
        temperature=temperature,
        target=SEVEN_BILLION
        | {"num_hidden_layers": layers, "num_nextn_predict_layers": 1, "num_key_value_heads": 2}
        | {"hidden_size": WIDTH, "head_dim": 128},
        methods=[*RUNNABLE],
        sources=sorted({word for method in RUNNABLE.values() for word in method.sources}),
        datastore=str(folder / "corpus"),
        gates=str(folder / "gates.tsv"),
        token_exits=str(folder / "exits.tsv"),
        exit_classifier=str(folder / "classifier"),
        exit_policy=str(folder / "policy"),
        constrained=True,
        workload={"answer_trigger": [4, 2]},
        models={
            "target": {"path": "target"},
            "drafts": [{"name": name, "path": name} for name in ("draft", *DRAFTERS)],
        },
    )
    offered = (one for one in possible_drafters(facts) if isinstance(one, SmallCache))
    small = {
        one: AcceptanceProfile.from_hazards([[0.6]], drafter=one)
        for one in (replace(drafter, budget=SMALL_BUDGET) for drafter in offered)
    }
    heads = {
        one: profile
        for one, profile in drafter_profiles(temperature).items()
        if one in HEADS or isinstance(one, Drawn)
    }
    more = {**source_profiles(temperature), **small, **heads}
    return with_blocks(replace(facts, profiles={**facts.profiles, **more}))


def kinds_of(method: Method[Any], facts: ProblemFacts, most: int = 8) -> Iterator[Kind]:
    """A plan of every kind of every family of a method: of `most` nodes, else the smallest."""
    for family in method.choices(facts):
        assert isinstance(family, Family), f"{method.name}, {family.name}: {family.reason}"
        least = max(most, min(map(nodes_of, family.settings)))
        small = [options for options in family.settings if nodes_of(options) <= least]
        for kind in kinds(small, partial(method.plan, facts)):
            options, plan = kind[len(kind) // 2]
            words = f"{method.name}, {family.name}: {options.words}"
            yield Kind(words, plan, method.drafter(facts, options) is not None)


def every_kind(
    folder: Path, temperature: float, per_family: int, layers: int = 3
) -> Iterator[tuple[str, Plan]]:
    """(name, plan) of `per_family` settings, spread evenly over each family's, of `EVERY_WAY`."""
    target = SEVEN_BILLION | {"num_hidden_layers": layers}
    facts = with_blocks(example_facts(folder, temperature=temperature, target=target))
    for name in sorted(EVERY_WAY):
        for family in RUNNABLE[name].choices(facts):
            assert isinstance(family, Family), family
            small = [options for options in family.settings if nodes_of(options) <= 16]
            step = max(len(small) // per_family, 1)
            for options in small[step - 1 :: step][:per_family]:
                yield f"{name}, {family.name}: {options.words}", RUNNABLE[name].plan(facts, options)


def ended_kinds(folder: Path, temperature: float, layers: int = 3) -> Iterator[tuple[str, Plan]]:
    """One plan of each kind whose round has a loop that ends by request; its bar in the middle."""
    every = discover_methods()
    named = [name for name, one in every.items() if one.by_name and not one.sources]
    target = SEVEN_BILLION | {"num_hidden_layers": layers}
    facts = example_facts(folder, temperature=temperature, target=target, methods=named)
    for name in named:
        for family in every[name].choices(facts):
            settings = family.settings if isinstance(family, Family) else ()
            for kind in kinds(settings, partial(every[name].plan, facts)):
                options, plan = kind[len(kind) // 2]
                if stopping_loops(plan.rounds[0]):
                    yield f"{name}: {options.words}", plan
