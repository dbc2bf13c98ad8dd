"""Facts of a problem for tests of methods and search: a 7B target with a 68M draft, no weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import (
    TEXT,
    Beam,
    Drafter,
    Fallback,
    FirstLayers,
    Interleaved,
    Model,
    OwnRounds,
    SkipBlocks,
    Source,
)
from specplan.cost_models.acceptance.evidence.copies import Copies
from specplan.cost_models.acceptance.evidence.fallback import FallbackTrace
from specplan.cost_models.acceptance.evidence.interleaved import InterleavedTrace
from specplan.cost_models.acceptance.evidence.lengths import NOTHING
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.blocks import Skips
from specplan.planner.drafters.candidates import possible_drafters
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.method import discover_methods, own_rounds
from specplan.planner.methods.draft_model import METHOD as DRAFT_MODEL
from specplan.planner.methods.draft_model import BlockChainOptions
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.trees import chain
from tests.planner.checkpoints import write_checkpoint

HAZARDS = ((0.6, 0.2, 0.1), (0.65, 0.15, 0.05), (0.5, 0.2, 0.1))
LOOKUP_HAZARDS = ((0.3,), (0.7,), (0.8,))
EXIT_HAZARDS = ((0.5, 0.2), (0.4, 0.2))


def example_problem(**changes: Any) -> dict[str, Any]:
    """A problem of two models on an H200; `changes` replace top-level keys."""
    value: dict[str, Any] = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target"},
            "drafts": [{"name": "draft", "path": "draft"}],
        },
        "device": "h200",
        "workload": {"batch_sizes": [1, 4], "prompt_tokens": 40, "output_tokens": 32},
    }
    return value | changes


def workload(**changes: Any) -> dict[str, Any]:
    """The workload of the example, changed."""
    return {"batch_sizes": [1, 4], "prompt_tokens": 40, "output_tokens": 32} | changes


def profiles(
    greedy: bool,
    hazards: Sequence[Sequence[float]] = HAZARDS,
    lookup: Sequence[Sequence[float]] = LOOKUP_HAZARDS,
    temperature: float = 0.0,
) -> dict[Drafter, AcceptanceProfile]:
    """Profiles of the draft model and of prompt lookup, from hazards of 1000 trials."""
    how = "best" if greedy else "draw_distinct"
    draft = AcceptanceKey(Model("draft"), temperature=temperature, how=how)  # type: ignore[arg-type]
    text = AcceptanceKey(TEXT, temperature=temperature, how="given")
    return {
        Model("draft"): AcceptanceProfile.from_hazards(hazards, key=draft, trials=1000),
        TEXT: AcceptanceProfile.from_hazards(lookup, key=text, trials=1000),
    }


SEVEN_BILLION = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
}
SIXTY_EIGHT_MILLION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
}
SHARED = {"vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False}


def measured_profiles(facts: ProblemFacts) -> dict[Drafter, AcceptanceProfile]:
    """Profiles of what methods draft with beside models: the text, parts of them, and beams."""
    key = acceptance_key(facts.problem, facts.shapes, TEXT)
    by_drafter: dict[Drafter, AcceptanceProfile] = {TEXT: AcceptanceProfile(key, made_up_copies())}
    for drafter in possible_drafters(facts):
        key = acceptance_key(facts.problem, facts.shapes, drafter)
        match drafter:
            case FirstLayers():
                by_drafter[drafter] = AcceptanceProfile.from_hazards(
                    EXIT_HAZARDS, key=key, trials=1000
                )
            case Beam(_, width):
                by_drafter[drafter] = AcceptanceProfile(key, made_up_pools(beam=width))
            case OwnRounds():
                by_drafter[drafter] = AcceptanceProfile(key, RoundsRun(made_up_lengths()))
            case Interleaved():
                by_drafter[drafter] = AcceptanceProfile(key, made_up_turns())
            case Fallback():
                by_drafter[drafter] = AcceptanceProfile(key, made_up_fallback())
    if facts.target.num_layers > 2:
        for part in (
            SkipBlocks("target", Skips.of([1], [])),
            SkipBlocks("target", Skips.of([1], [1])),
        ):
            key = acceptance_key(facts.problem, facts.shapes, part)
            by_drafter[part] = AcceptanceProfile.from_hazards(EXIT_HAZARDS, key=key, trials=1000)
    return by_drafter


SOURCES = tuple(DRAFT_SOURCES)
REHEARSED = tuple(
    dict.fromkeys(
        word
        for method in discover_methods().values()
        if isinstance(method, ProfiledByRunning)
        for word in method.sources
        if word not in ("prompt_lookup", *SOURCES)
    )
)
"""Sources of methods whose own rounds are run to see what is accepted."""


def source_profiles(temperature: float = 0.0) -> dict[Drafter, AcceptanceProfile]:
    """Profiles of the sources that plans declare, from hazards or pools."""
    by_source: dict[Drafter, AcceptanceProfile] = {}
    for word, source in DRAFT_SOURCES.items():
        key = AcceptanceKey(Source(word), temperature=temperature, how="given", match=source.match)
        if source.evidence == "pools":
            by_source[Source(word)] = AcceptanceProfile(key, made_up_pools(source.longest))
        else:
            rates = [(*row, row[0] / 4) for row in LOOKUP_HAZARDS]
            by_source[Source(word)] = AcceptanceProfile.from_hazards(rates, key=key, trials=1000)
    return by_source


def made_up_lengths(prompts: int = 6, positions: int = 48) -> tuple[tuple[int, ...], ...]:
    """Accepted tokens of rounds that begin at each place of some texts."""
    return tuple(
        tuple((place * 5 + p) % 7 // 3 for place in range(positions)) for p in range(prompts)
    )


def with_blocks(facts: ProblemFacts) -> ProblemFacts:
    """With rounds, made up, of chains of four that are judged as a block, above temperature 0."""
    tree = chain(4)
    options = (BlockChainOptions(draft, tree.parents, tree.ranks) for draft in facts.drafts)
    ran = [] if facts.greedy else [own_rounds(facts, DRAFT_MODEL, one) for one in options]
    keys = (acceptance_key(facts.problem, facts.shapes, rounds) for rounds in ran)
    of_blocks = {key.drafter: AcceptanceProfile(key, RoundsRun(made_up_lengths())) for key in keys}
    return replace(facts, profiles={**facts.profiles, **of_blocks})


def made_up_pools(
    layers: int = 6, prompts: int = 6, positions: int = 48, beam: int | None = None
) -> Pools:
    """Pools in which the text is spelled 0 to `layers` deep, not far from the front."""

    def position(prompt: int, place: int) -> tuple[int, ...]:
        depth = min((place * 5 + prompt) % (layers + 3), layers, positions - place)
        spread = 1 + (prompt + place) % 3
        places = [
            spread * (above + further)
            for above in range(depth)
            for further in range(layers - above)
        ]
        return ((depth < layers) * (place % 4 > 0), *places)

    rows = tuple(tuple(position(p, i) for i in range(positions)) for p in range(prompts))
    return Pools(layers, rows, beam)


def made_up_turns(prompts: int = 6, positions: int = 48) -> InterleavedTrace:
    """Turns in which the model is right two times of three, and the source now and then."""

    def position(prompt: int, place: int) -> tuple[int, int]:
        copied = (place * 7 + prompt) % 11 - 4
        return int((place + prompt) % 3 > 0), max(0, min(copied, positions - place))

    rows = tuple(tuple(position(p, i) for i in range(positions)) for p in range(prompts))
    return InterleavedTrace(16, rows)


def made_up_copies(prompts: int = 6, positions: int = 48) -> Copies:
    """Matches at three positions of four; the longer ones are followed by longer copies."""

    def position(prompt: int, place: int) -> tuple[int, int]:
        matched = (place * 5 + prompt) % 12 - 3
        return max(0, matched), max(0, min(matched - 5, positions - place))

    rows = tuple(tuple(position(p, i) for i in range(positions)) for p in range(prompts))
    return Copies(8, 24, rows)


def made_up_fallback(prompts: int = 6, positions: int = 48) -> FallbackTrace:
    """Matches at two positions of three, which are often longer than what the model drafts."""

    def position(prompt: int, place: int) -> tuple[int, int]:
        copied = (place * 7 + prompt) % 11 if (place + prompt) % 3 else NOTHING
        left = positions - place
        return min(copied, left), min((place + prompt) % 4, left)

    rows = tuple(tuple(position(p, i) for i in range(positions)) for p in range(prompts))
    return FallbackTrace(16, 8, rows)


def example_facts(
    folder: Path,
    *,
    temperature: float = 0.0,
    given: Mapping[Drafter, AcceptanceProfile] | None = None,
    target: Mapping[str, Any] = SEVEN_BILLION,
    draft: Mapping[str, Any] = SIXTY_EIGHT_MILLION,
    constrained: bool = False,
    **changes: Any,
) -> ProblemFacts:
    """Write the models' configs (no weights: a named device needs none) and gather the facts.

    `constrained` outputs follow a JSON schema.
    """
    for name, config in (("target", target), ("draft", draft)):
        full = {**SHARED, **config, "dtype": "bfloat16"}
        write_checkpoint(folder / name, weights=False, **full)
    if temperature:
        changes["workload"] = workload(temperature=temperature) | changes.get("workload", {})
    if constrained:
        (folder / "schema.json").write_text('{"type": "object"}', encoding="utf-8")
        changes["workload"] = workload() | changes.get("workload", {})
        changes["workload"] = changes["workload"] | {"json_schema": "schema.json"}
    problem = problem_from_dict(example_problem(**changes), folder)
    if given is not None:
        return gather_facts(problem, profiles=given)
    given = profiles(problem.workload.greedy, temperature=problem.workload.temperature)
    facts = gather_facts(problem, profiles=given)
    return replace(facts, profiles={**given, **measured_profiles(facts)})
