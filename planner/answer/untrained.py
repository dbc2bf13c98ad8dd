"""Drafters that are not trained yet, in the words of a user: a table, and a line for `optimize`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from specplan.planner.answer.names import spread, times
from specplan.planner.explain.what_if_words import aligned
from specplan.planner.training.candidates import Untrained, UntrainedDrafter
from specplan.planner.training.families import FAMILIES

_DURATIONS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
WIDTH = 100
HEADS = (
    "drafter", "layers", "width", "vocabulary", "pays from", "speedup", "90 % interval", "K",
    "training",
)  # fmt: skip
NOTES = (
    '"pays from": how often a draft token must be accepted, given that those before it were.',
    "Speedup: of a request over no speculation, prompt included, at the acceptance published for",
    "such drafters on this kind of prompts. K: draft tokens per step of the best plan.",
    "Training: on this device, by the published recipe; without writing the target's answers.",
)
OTHER_SIZE = (
    "* Nothing is published on this size, or on modules trained after their target: the speedup if",
    "  as much is accepted as of published ones.",
)


def table(untrained: Untrained) -> list[list[str]]:
    """A heading, and a row for each candidate."""
    return [list(HEADS), *(_row(one) for one in untrained.candidates)]


def table_lines(untrained: Untrained) -> Iterator[str]:
    """The table with what its columns mean, and what was left out and why."""
    if untrained.candidates:
        yield from aligned(table(untrained), [True, *[False] * (len(HEADS) - 1)])
        yield ""
        yield from NOTES
        if not all(one.published for one in untrained.candidates):
            yield from OTHER_SIZE
    else:
        yield "No drafter of these families would pay here."
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in untrained.left_out:
        size = "" if one.layers is None else f"{one.layers} x {one.width}, {one.vocabulary} tokens"
        reasons.setdefault((one.family, one.reason), []).append(size)
    for (family, reason), sizes in reasons.items():
        named = f" ({'; '.join(sizes)})" if all(sizes) else ""
        yield from wrap(f"Left out: {FAMILIES[family].words}{named}: {reason}.", WIDTH)


def untrained_line(best: UntrainedDrafter) -> str:
    """What the best drafter would give, in a line below a decision."""
    name = FAMILIES[best.family].words
    gain = {"mean": best.gain, "low": best.low, "high": best.high}
    return f"{name}, not trained yet: would give {times(best.gain)} ({spread(gain)})"


def duration(seconds: float | None) -> str:
    """A long time with its unit; `-` where it is not known."""
    if seconds is None:
        return "-"
    scale, unit = next((one for one in _DURATIONS if seconds >= 2 * one[0]), _DURATIONS[-1])
    number = seconds / scale
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"


def _row(one: UntrainedDrafter) -> list[str]:
    gain: Mapping[str, float] = {"mean": one.gain, "low": one.low, "high": one.high}
    tokens: Sequence[Any] = (one.layers, one.width, one.vocabulary)
    return [
        FAMILIES[one.family].words + ("" if one.published else " *"),
        *map(str, tokens),
        "-" if one.pays_from is None else f"{one.pays_from:.2f}",
        times(one.gain) if one.draft_tokens else "-",
        spread(gain) if one.draft_tokens else "-",
        str(one.draft_tokens) if one.draft_tokens else "-",
        duration(one.train_seconds),
    ]
