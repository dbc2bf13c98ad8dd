"""Acceptance profiles from the logs of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specplan.cost_models.acceptance.profile import AcceptanceProfile


def import_acceptance(
    path: Path | str,
    proposer: str,
    *,
    format: str | None = None,
    task: str = "",
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    draft_tokens: int | None = None,
    rounds: float | None = None,
    select: str | None = None,
) -> AcceptanceProfile:
    """The acceptance profile that a log of another program holds; see docs/acceptance.md.

    Args:
        path: the log.
        proposer: what drafted: a draft model's name, or "text" for prompt lookup.
        format: what wrote it; found by itself when None and clear.
        task: the word of the problem's workload.
        temperature: of the requests, and so `top_k` and `top_p`.
        top_k: 0 for off.
        top_p: 1 for off.
        draft_tokens: drafted tokens a round, where the log does not say.
        rounds: rounds behind its figures, where it does not say.
        select: a part of it: a label, a subset or a mode.

    Raises:
        UsageError: the file is broken, or its format is not clear.
    """
    from specplan.cost_models.acceptance.importers.base import ImportRequest
    from specplan.cost_models.acceptance.importers.registry import read_profile
    from specplan.cost_models.acceptance.profile import AcceptanceKey
    from specplan.planner.draft_sources import DRAFT_SOURCES

    looked_up = proposer in ("text", *DRAFT_SOURCES)
    key = AcceptanceKey(
        proposer,
        task=task,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        how="given" if looked_up else "draw" if temperature > 0 else "best",
    )
    return read_profile(path, ImportRequest(key, draft_tokens, rounds, select), format)
