"""What `exits.py` measured, as a section of docs/quality.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reference_problem import ROOT

LEAVING = (
    "copied_exit",
    "confident_exit",
    "agreeing_exit",
    "exit_by_token",
    "policy_exit",
    "depth_by_position",
    "predictive_pipeline",
    "nested_exits",
)
LENIENT = ("relaxed_acceptance", "bild", "joint_beam", "contrastive", "nest")
METHODS = [*LEAVING, *LENIENT]
PAGE = ROOT / "docs/quality.md"
START, END = "<!-- exits:start -->\n", "<!-- exits:end -->"


def section(data: Mapping[str, Any]) -> str:
    """The results as a part of docs/quality.md."""
    run, risk = data.get("timed"), percent(data["risk"])
    words = f"""The reference target at temperature 0, {data["output_tokens"]} tokens after starts of held-out functions. A loss is the share of
requests whose output differs from the target's in any token. {data["calibrated"]} prompts choose and {data["reported"]} others report; each bound
holds at a risk of {risk}, and which settings keep the limit of {percent(data["at_most"])} is tested at that risk for all methods together
({len(data["tested"])} settings). "Tokens" is the share of a plan's tokens that the target would not choose after the same text
({data["token_prompts"]} prompts). Of each method there is the fastest setting that keeps the limit, or where none does the one of
the least bound, and the fastest of all, by prices of a data sheet ({data["date"]}).
"""  # noqa: E501
    if run is None:
        words += "Speeds are not measured yet.\n"
    else:
        errors = [abs(error) for row in data["rows"] if (error := error_of(row)) is not None]
        words += f"""Speeds are over no speculation, of whole requests, medians over {run["prompts"]} other prompts, {run["repeats"]} times each, in turns
({run["hardware"]}, torch {run["versions"]["torch"]}, {run["date"]}); {sum(e <= 0.15 for e in errors)} of {len(errors)} are predicted within 15 %.
"""  # noqa: E501
    head = ("method", "setting", "loss", "at most", "tokens", "speed", "predicted", "error")
    lines = [head, tuple("---" if place < 2 else "---:" for place in range(len(head)))]
    lines += [cells(row) for row in data["rows"]]
    return f"{words}\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A line of the table."""
    loss, ratio = row["loss"], row.get("ratio")
    lost = ("0, by proof",) * 2
    if loss is not None:
        lost = percent(loss["mean"]), percent(loss["bound"]) + (", kept" if row["keeps"] else "")
    fast = ["-", "-", "-"]
    if ratio is not None:
        fast[0] = f"{ratio:.2f}x"
    if (error := error_of(row)) is not None:
        fast[1:] = f"{row['predicted_ratio']:.2f}x", f"{100 * error:+.0f} %"
    return f"`{row['method']}`", row["words"], *lost, percent(row["tokens_differ"]), *fast


def error_of(row: Mapping[str, Any]) -> float | None:
    """By how much the predicted speed is too high; None where one of the two is not there."""
    predicted = row.get("predicted_ratio")
    return None if predicted is None else float(predicted / row["ratio"] - 1.0)


def percent(share: float) -> str:
    """`12 %`, `1.5 %`."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
