"""What an acceptance profile is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from specplan.cost_models.acceptance.drafter_texts import read_drafter
from specplan.cost_models.acceptance.drafters import Drafter
from specplan.ir.files import name_of

How = Literal["best", "draw", "draw_distinct", "given", "run"]


@dataclass(frozen=True)
class AcceptanceKey:
    """What a profile is about.

    Attributes:
        drafter: who drafts.
        target_digest: identity of the target's checkpoint.
        drafter_digest: identity of the checkpoint that drafts; "" for a source.
        task: the user's word for the kind of prompts.
        temperature: of the request's sampling.
        top_k: of the request's sampling, 0 for off.
        top_p: of the request's sampling, 1 for off.
        how: how children were chosen: the best ranks, draws, draws without replacement, or
            given by a source; "run" where the very rounds ran: lengths are then of whole drafts,
            whatever their shape.
        match: shortest and longest suffix looked up, tokens; for sources.
        grammar: digest of what outputs must follow; "" for nothing.
    """

    drafter: Drafter
    target_digest: str = ""
    drafter_digest: str = ""
    task: str = ""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    how: How = "best"
    match: tuple[int, int] | None = None
    grammar: str = ""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> AcceptanceKey:
        """From what files hold.

        Raises:
            KeyError: nobody drafts.
            TypeError: a field is unknown, or no text where one is due.
            ValueError: a field holds something else than it should.
        """
        named = dict(data)
        if named.get("match") is not None:
            shortest, longest = named["match"]
            named["match"] = (int(shortest), int(longest))
        return cls(**{**named, "drafter": read_drafter(named["drafter"])})

    def as_data(self) -> dict[str, Any]:
        """Ready for JSON."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.grammar:
            del named["grammar"]
        return {**named, "drafter": str(self.drafter)}

    def differences(self, other: AcceptanceKey) -> tuple[str, ...]:
        """What keeps a profile with this key from serving where `other` is asked for."""
        mine, theirs = self.as_data(), other.as_data()
        return tuple(
            f"{name}: {mine.get(name)!r} against {theirs.get(name)!r}"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        )


def file_name(drafter: Drafter) -> str:
    """A name for files about a drafter: `first_layers-target-4`; a long one ends in a digest."""
    letters = (c if c.isalnum() or c == "_" else " " for c in str(drafter))
    name = "-".join("".join(letters).split())
    return name if len(name) <= 120 else f"{name[:60]}-{name_of(name)}"
