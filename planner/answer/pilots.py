"""Pilots of trainings, in the words of a user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specplan.planner.answer.names import spread, times
from specplan.planner.answer.untrained import duration
from specplan.planner.explain.what_if_words import aligned
from specplan.planner.training.families import FAMILIES

HEADS = ("drafter", "steps", "of", "accepted by position", "speedup", "90 % interval", "training")


def pilot_lines(pilots: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table of pilots, the fastest plan first, and what its columns mean."""
    rows = [_row(one) for one in pilots]
    yield from aligned([list(HEADS), *rows], [True, *[False] * (len(HEADS) - 1)])
    yield ""
    yield "Accepted and speedup: what all steps would give, by the curves of the pilot; of the best"
    yield "plan over no speculation. Training: all steps, as fast as the pilot."


def _row(pilot: Mapping[str, Any]) -> list[str]:
    rates = " ".join(f"{rate['mean']:.2f}" for rate in pilot["rates"])
    return [
        FAMILIES[pilot["family"]].words, str(pilot["steps"]), str(pilot["budget"]), rates,
        times(pilot["speed"]["mean"]), spread(pilot["speed"]), duration(pilot["seconds"]),
    ]  # fmt: skip
