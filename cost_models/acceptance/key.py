"""What an acceptance profile is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from specplan.ir.blocks import Skips

How = Literal["best", "draw", "draw_distinct", "given", "run"]


@dataclass(frozen=True)
class AcceptanceKey:
    """What a profile is about.

    Attributes:
        proposer: the draft model's name, "text" for prompt lookup, the first layers of a model as
            "target@4", a model without some blocks as "target-a3m4", a beam of a draft model as
            "draft^4", a draft model that takes turns with a source as "draft&text", or a model
            that drafts in a way of its own as "target+jacobi8".
        target_digest: identity of the target's checkpoint.
        proposer_digest: identity of the draft model's checkpoint; "" for a source.
        task: the user's word for the kind of prompts.
        temperature: of the request's sampling.
        top_k: of the request's sampling, 0 for off.
        top_p: of the request's sampling, 1 for off.
        how: how children were chosen: the best ranks, draws, draws without replacement, or
            given by a source; "run" where the very rounds ran: lengths are then of whole drafts,
            whatever their shape.
        match: shortest and longest suffix looked up, tokens; for sources.
        layers: how many of the model's first layers draft; None for all.
        beam: children of a node, and nodes of a layer that get any, in trees grown by a beam; None
            for other drafts.
        skip: blocks of the model that are left out, by name in the order of the stack.
        source: what the model takes turns with, "text" or the name of a source; None for nothing.
    """

    proposer: str
    target_digest: str = ""
    proposer_digest: str = ""
    task: str = ""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    how: How = "best"
    match: tuple[int, int] | None = None
    layers: int | None = None
    beam: int | None = None
    skip: tuple[str, ...] = ()
    source: str | None = None

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> AcceptanceKey:
        """From what files hold.

        Raises:
            TypeError: a field is missing or unknown.
            ValueError: a field holds something else than it should.
        """
        named = dict(data)
        if named.get("match") is not None:
            shortest, longest = named["match"]
            named["match"] = (int(shortest), int(longest))
        named["skip"] = Skips.read(named.get("skip", ())).words
        return cls(**named)

    def differences(self, other: AcceptanceKey) -> tuple[str, ...]:
        """What keeps a profile with this key from serving where `other` is asked for."""
        mine, theirs = asdict(self), asdict(other)
        return tuple(
            f"{name}: {mine[name]!r} against {theirs[name]!r}"
            for name in mine
            if mine[name] != theirs[name]
        )
