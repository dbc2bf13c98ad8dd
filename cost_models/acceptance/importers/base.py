"""What an importer is, and what it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.foreign_file import Source


@dataclass(frozen=True)
class ImportRequest:
    """What is asked of an importer beyond the file.

    Attributes:
        key: what the profile will be about.
        draft_tokens: drafted tokens a round, where the file does not say.
        rounds: rounds behind the figures, where the file does not say.
        select: which part of the file: a label, a subset, a mode; None for all, or the only one.
    """

    key: AcceptanceKey
    draft_tokens: int | None = None
    rounds: float | None = None
    select: str | None = None


@dataclass(frozen=True)
class Importer:
    """One format.

    Attributes:
        name: of the format.
        summary: what it is, in a few words.
        recognises: whether a file looks like it.
        read: makes the profile; raises `UsageError` for broken files.
        every_round: it counts rounds in which nothing was drafted, too. Engines do not, which
            hides the misses of a lookup.
    """

    name: str
    summary: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source, ImportRequest], AcceptanceProfile]
    every_round: bool = False


def chain_length(source: Source, request: ImportRequest, drafted: float, rounds: float) -> int:
    """Drafted tokens a round: as asked, else the mean of the file.

    Raises:
        UsageError: the mean is far from a whole number, and none was asked for.
    """
    if request.draft_tokens is not None:
        return request.draft_tokens
    mean = drafted / rounds
    if mean < 0.5 or abs(mean - round(mean)) > 0.1 * mean:
        raise source.error(
            f"{mean:.2f} tokens were drafted a round on average: drafts differ in length",
            "Say the most that are drafted with --draft-tokens.",
        )
    return round(mean)
