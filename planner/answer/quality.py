"""Speed against loss as a person reads it: a sentence, and a row for each plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specplan.planner.answer.names import plan_name
from specplan.planner.quality.limit import amount

_MEASURES = {
    "outputs_differ": "of outputs differ from the target's",
    "total_variation": "total variation of a token's law",
    "kl": "divergence of a token's law",
    "held_out_loss": "lost on held-out text",
    "command": "lost in the command's score",
}
MOST_SHOWN = 6


def quality_lines(data: Mapping[str, Any] | None) -> Iterator[str]:
    """What the chosen plan loses, and what one more per cent would buy; nothing without a limit."""
    if data is None:
        return
    name = data["measure"]
    limit = f"the limit is {amount(data['at_most'], name)}"
    if not data["samples"]:
        yield f"the output follows the target's own law, nothing is lost; {limit}"
    else:
        yield (
            f"at most {amount(data['bound'], name)} {_MEASURES[name]} "
            f"({data['risk']:.0%} risk, {data['samples']} prompts); {limit}"
        ).replace("% risk", " % risk")
        exact = data["lossless_speedup"]
        yield f"the best plan that loses nothing is {exact:.2f}x no speculation"
    if data["price"] is not None:
        step = "0.01" if name in ("kl", "held_out_loss") else "one more per cent"
        yield f"{step} would make the next plan {100 * data['price']:.1f} % faster"
    points = [f"{one['speedup']:.2f}x: {amount(one['bound'], name)}" for one in data["front"]]
    best = [text for text, one in zip(points, data["front"], strict=True) if one["best"]]
    if len(best) > 1:
        yield f"speed: loss at most | {' | '.join(best[:MOST_SHOWN])}"


def front_title(data: Mapping[str, Any]) -> str:
    """What the rows are about."""
    risk = f"{100 * data['risk']:g} % risk"
    return f"Speed against loss: {_MEASURES[data['measure']]}, each bound with {risk}"


def front_rows(data: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads, and a row for each plan whose loss is known, the fastest first."""
    name = data["measure"]
    heads = ("plan", ">speedup", ">loss", ">at most", "")
    rows: list[tuple[str, ...]] = []
    for one in data["front"]:
        marks = ["on the front"] * one["best"] + ["keeps the limit"] * one["keeps"]
        loss, bound = (amount(one[key], name) for key in ("mean", "bound"))
        rows.append((plan_name(one), f"{one['speedup']:.2f}x", loss, bound, ", ".join(marks)))
    return heads, rows


def front_table(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Title, heads and rows of a report's table; None without a limit."""
    if data is None:
        return None
    heads, rows = front_rows(data)
    return {"title": front_title(data), "head": [one.lstrip(">") for one in heads], "rows": rows}
