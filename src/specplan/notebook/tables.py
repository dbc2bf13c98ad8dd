"""Predictions as rows, one per operating point; units are in the names of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from specplan.planner.answer.names import PLAIN, plan_name

if TYPE_CHECKING:
    from specplan.result import Result

Row = dict[str, Any]


def result_rows(result: Result) -> list[Row]:
    """The chosen plan and no speculation, one row per operating point; see `point_rows`.

    Of an undecided result, the rows of `Result.what_if`.
    """
    if result.verdict == "undecided":
        return [row.as_dict() for row in result.what_if]
    return point_rows(result.answer)


def point_rows(explanation: Mapping[str, Any]) -> list[Row]:
    """The operating points of an explanation as rows, by the names and meanings of its `points`.

    Columns: `batch`, `prompt_tokens`, `output_tokens` (None for a trace); `plan`; `draft_tokens`
    per step (K); `tpot_ms` and `tpot_ms_plain`, time per output token while decoding, with the plan
    and without speculation; `decode_gain`, how many times as fast; `request_gain`, the same of
    whole requests, prompts included; `ttft_ms`;
    `decode_tokens_per_s_user` and `decode_tokens_per_s_total`, of a request and of the batch while
    decoding; `memory_gb_per_device`.
    """
    setting, chosen = explanation["setting"], explanation["chosen"]
    own = "" if chosen["method"] != PLAIN else "plain_"
    rows = []
    for point in explanation["points"]:
        tpot = point[f"{own}tpot"]["mean"]
        rows.append(
            {
                "batch": point["batch"],
                "prompt_tokens": point["prompt_tokens"],
                "output_tokens": setting["output_tokens"],
                "plan": plan_name(chosen),
                "draft_tokens": 0 if own else point["draft_tokens"],
                "tpot_ms_plain": 1e3 * point["plain_tpot"]["mean"],
                "tpot_ms": 1e3 * tpot,
                "decode_gain": 1.0 if own else point["decode_gain"]["mean"],
                "request_gain": 1.0 if own else point["request_gain"]["mean"],
                "ttft_ms": 1e3 * point[f"{own}ttft"]["mean"],
                "decode_tokens_per_s_user": 1.0 / tpot,
                "decode_tokens_per_s_total": point["batch"] / tpot,
                "memory_gb_per_device": point[f"{own}memory_bytes"]["mean"]
                / 1e9
                / setting["devices"],
            }
        )
    return rows


def frame(rows: Sequence[Row]) -> Any:
    """Rows as a pandas DataFrame; where pandas is not installed, as the list that they are."""
    try:
        import pandas
    except ImportError:
        return list(rows)
    return pandas.DataFrame(list(rows))


def cell(value: Any) -> str:
    """A value of a row as text, numbers with three digits."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100.0 else f"{value:.3g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {cell(one)}" for name, one in value.items())
    return str(value)


def text_table(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Lines of a table for a terminal."""
    cells = [[*columns], *([cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(text.rjust(w) for text, w in zip(line, widths, strict=True)) for line in cells
    ]


def html_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The same table as HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell(row[name]))}</td>' for name in columns)}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
