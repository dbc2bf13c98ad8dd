"""What the rounds of the chosen plan need beside weights and states, in one arena each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specplan.cost_models.memory.plan_memory import as_allocated
from specplan.passes.plan_memory import Arena, plan_memory
from specplan.planner.explain.as_data import interval_data
from specplan.planner.explain.numbers import about, bytes_words
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.candidates import Candidate


def arenas(facts: ProblemFacts, chosen: Candidate) -> tuple[Arena, ...]:
    """Of the lowered rounds of a plan, at the workload's largest batch and longest text."""
    from specplan.passes.pipeline import run_passes

    assert chosen.plan is not None, "a chosen candidate has a plan"
    lowered = run_passes(chosen.plan)
    return plan_memory(lowered, facts.shapes, max(facts.batch_sizes), facts.longest_text)


def memory_data(facts: ProblemFacts, chosen: Candidate) -> list[dict[str, Any]]:
    """One entry per round: bytes of its arena, and of its buffers side by side."""
    return [
        {
            "round": arena.name,
            "batch": arena.batch,
            "text_tokens": arena.text_tokens,
            "arena_bytes": interval_data(as_allocated(arena.size)),
            "without_reuse_bytes": interval_data(as_allocated(arena.without_reuse)),
        }
        for arena in arenas(facts, chosen)
    ]


def memory_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """One sentence per round; none for reports that were written before there were arenas."""
    for entry in explanation.get("memory", ()):
        yield (
            f"Buffers of round {entry['round']} at batch {entry['batch']} and texts of "
            f"{entry['text_tokens']} tokens: {about(entry['arena_bytes'], bytes_words)} in one "
            f"arena, {about(entry['without_reuse_bytes'], bytes_words)} if none were used again."
        )
