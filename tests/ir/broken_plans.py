"""Smallest edits that break one rule each, and a neighbour of each that breaks none."""

from __future__ import annotations

from dataclasses import dataclass

from tests.ir.plans_on_disk import text_of

Edits = dict[str, str]


@dataclass(frozen=True)
class Broken:
    """A plan on disk and two small edits of its text.

    Attributes:
        plan: name of the plan.
        edits: what breaks the rule: old text, which stands in the plan once, to new text.
        rule: the rule it breaks.
        place: part of the place that every diagnostic names.
        fine: neighbouring edits that break nothing; none for the plan as it is.
    """

    plan: str
    edits: Edits
    rule: str
    place: str
    fine: Edits | None = None

    @property
    def text(self) -> str:
        """The broken plan."""
        return edited(text_of(self.plan), self.edits)

    @property
    def neighbour(self) -> str:
        """The plan beside it that is well formed."""
        return edited(text_of(self.plan), self.fine or {})


def edited(text: str, edits: Edits) -> str:
    """The text with some changes; each old text must stand in it exactly once."""
    for old, new in edits.items():
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the plan"
        text = text.replace(old, new)
    return text
