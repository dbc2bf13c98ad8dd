"""One plan, or some, of every family of every method that runs, for a target of so many layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.stopping import stopping_loops
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.kinds import kinds
from specplan.planner.method import Family, Method, discover_methods
from specplan.runtime.sources.datastore_build import build_datastore
from tests.planner.example_facts import (
    REHEARSED,
    SEVEN_BILLION,
    SOURCES,
    example_facts,
    source_profiles,
)

EVERY_WAY = frozenset({
    "autoregressive", "draft_model", "dynamic_tree", "early_exit", "layer_skip", "prompt_lookup",
})  # fmt: skip


SMALL_CACHES = ("target~20", "draft~18")
"""Drafters that forget what tests write."""


def every_kind(
    folder: Path, temperature: float, per_family: int, layers: int = 3
) -> Iterator[tuple[str, Plan]]:
    """(name, plan) of `per_family` settings, spread evenly over each family's.

    Of the methods that between them use every way of drafting and judging there is without a
    declared source. Widths are no matter of a plan; `layers` is how many the target has.
    """
    target = SEVEN_BILLION | {"num_hidden_layers": layers}
    facts = example_facts(folder, temperature=temperature, target=target)
    yield from _kinds(facts, per_family, lambda method: method.name in EVERY_WAY)


def further_kinds(
    folder: Path, temperature: float, per_family: int, most: int = 16
) -> Iterator[tuple[str, Plan]]:
    """The same of other lossless methods that draft from models and the text: of `most` nodes."""
    target = SEVEN_BILLION | {"num_hidden_layers": 3}
    named = [
        name
        for name, method in discover_methods().items()
        if name not in EVERY_WAY and not set(method.sources) - {"prompt_lookup"} and method.lossless
    ]
    facts = example_facts(folder, temperature=temperature, target=target, methods=named)
    small = {name: AcceptanceProfile.from_alpha(0.6, proposer=name) for name in SMALL_CACHES}
    facts = replace(facts, profiles={**facts.profiles, **small})
    yield from _kinds(facts, per_family, lambda method: method.name in named, most)


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


def source_kinds(
    folder: Path, temperature: float, per_family: int, most: int = 16
) -> Iterator[tuple[str, Plan]]:
    """The same of methods that draft from a source beside the text, their own rounds among them."""
    facts = example_facts(
        folder,
        temperature=temperature,
        target=SEVEN_BILLION | {"num_hidden_layers": 3},
        sources=["prompt_lookup", *SOURCES, *REHEARSED],
        datastore=str(_small_datastore(folder / "corpus")),
    )
    facts = replace(facts, profiles={**facts.profiles, **source_profiles(temperature)})
    yield from _kinds(
        facts, per_family, lambda method: bool(set(method.sources) - {"prompt_lookup"}), most
    )


def _kinds(
    facts: ProblemFacts, per_family: int, wanted: Callable[[Method[Any]], bool], most: int = 16
) -> Iterator[tuple[str, Plan]]:
    for method in discover_methods().values():
        if not method.runnable or not wanted(method):
            continue
        for family in method.choices(facts):
            assert isinstance(family, Family), family
            small = [item for item in family.settings if nodes_of(item) <= most]
            step = max(len(small) // per_family, 1)
            for options in small[step - 1 :: step][:per_family]:
                yield f"{method.name}, {family.name}: {options.words}", method.plan(facts, options)


def _small_datastore(folder: Path) -> Path:
    """A corpus of byte texts, folded onto the smallest vocabulary that tests use."""
    text = np.frombuffer(Path(__file__).read_bytes(), dtype=np.uint8) % 5
    build_datastore(folder, [lambda: [text]], 5, "this file", lambda *_: None)
    return folder


def nodes_of(options: object) -> int:
    """Verified nodes of a setting, 0 where it says nothing of them."""
    return int(getattr(options, "nodes", len(getattr(options, "parents", ()))))
