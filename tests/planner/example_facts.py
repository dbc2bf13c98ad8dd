"""Facts of a small problem for tests of methods and search: tiny models on a named device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance import AcceptanceKey, AcceptanceProfile
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.loading import problem_from_dict
from tests.planner.checkpoints import write_checkpoint

HAZARDS = ((0.6, 0.2, 0.1), (0.65, 0.15, 0.05), (0.5, 0.2, 0.1))
LOOKUP_HAZARDS = ((0.3,), (0.7,), (0.8,))


def example_problem(**changes: Any) -> dict[str, Any]:
    """A problem of two tiny models on an H200; `changes` replace top-level keys."""
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
) -> dict[str, AcceptanceProfile]:
    """Profiles of the draft model and of prompt lookup, from hazards of 1000 trials."""
    how = "best" if greedy else "draw_distinct"
    draft = AcceptanceKey("draft", temperature=temperature, how=how)  # type: ignore[arg-type]
    text = AcceptanceKey("text", temperature=temperature, how="given")
    return {
        "draft": AcceptanceProfile.from_hazards(hazards, key=draft, trials=1000),
        "text": AcceptanceProfile.from_hazards(lookup, key=text, trials=1000),
    }


def example_facts(
    folder: Path,
    *,
    temperature: float = 0.0,
    given: Mapping[str, AcceptanceProfile] | None = None,
    **changes: Any,
) -> ProblemFacts:
    """Write the models and gather the facts."""
    wide = {"hidden_size": 64, "intermediate_size": 128}
    if not (folder / "target").exists():
        write_checkpoint(folder / "target", num_hidden_layers=12, weights=False, **wide)
        write_checkpoint(folder / "draft", weights=False, **wide)
    if temperature:
        changes["workload"] = workload(temperature=temperature) | changes.get("workload", {})
    problem = problem_from_dict(example_problem(**changes), folder)
    if given is None:
        given = profiles(problem.workload.greedy, temperature=problem.workload.temperature)
    return gather_facts(problem, profiles=given)
