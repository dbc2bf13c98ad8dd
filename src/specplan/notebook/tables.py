"""Predictions as rows, one per operating point; units are in the names of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specplan.result import Result

Row = dict[str, Any]


def result_rows(result: Result) -> list[Row]:
    """The chosen plan beside no speculation, one row per batch size and prompt length.

    Of an undecided result, the rows of `Result.what_if`.

    Columns: `batch`, `prompt_tokens`, `output_tokens`; `plan`; `tpot_ms` and `tpot_ms_plain`, time
    per output token while decoding, with and without speculation; `decode_gain`, their quotient;
    `request_gain`, the quotient of whole requests, prompts included; `ttft_ms`;
    `decode_tokens_per_s_user` and `decode_tokens_per_s_total`, of a request and of the batch while
    decoding; `memory_gb_per_device`.
    """
    from specplan.planner.search.candidates import estimate_as_dict

    if result.verdict == "undecided":
        return [row.as_dict() for row in result.what_if]
    search = result.search
    plain = [estimate_as_dict(estimate) for estimate in search.plain.estimates]
    chosen = [estimate_as_dict(estimate) for estimate in search.chosen.estimates]
    name = plan_words(search.chosen.method, search.chosen.words)
    return estimate_rows(name, chosen, plain, result.problem.device)


def plan_words(method: str, words: str) -> str:
    """A plan in words."""
    return "no speculation" if method == "autoregressive" else f"{method}, {words}"


def estimate_rows(
    name: str,
    estimates: Sequence[Mapping[str, Any]],
    plain: Sequence[Mapping[str, Any]],
    device: str,
) -> list[Row]:
    """Rows of `result_rows` from estimates as JSON data.

    Args:
        name: the plan in words.
        estimates: of the plan, one per operating point.
        plain: of no speculation, at the same operating points or at fewer.
        device: with the number of devices in front, as the problem names it.
    """
    from specplan.cost_models.devices.device import device_count

    devices = device_count(device)
    without = {_point(estimate): estimate for estimate in plain}
    rows = []
    for estimate in estimates:
        tpot = estimate["seconds_per_token"]["median"]
        other = without.get(_point(estimate))
        tpot_plain = None if other is None else other["seconds_per_token"]["median"]
        request = estimate["request_seconds"]["median"]
        rows.append(
            {
                "batch": estimate["batch"],
                "prompt_tokens": estimate["prompt_tokens"],
                "output_tokens": estimate["output_tokens"],
                "plan": name,
                "tpot_ms": 1e3 * tpot,
                "tpot_ms_plain": None if tpot_plain is None else 1e3 * tpot_plain,
                "decode_gain": None if tpot_plain is None else tpot_plain / tpot,
                "request_gain": None
                if other is None
                else other["request_seconds"]["median"] / request,
                "ttft_ms": 1e3 * estimate["ttft"]["median"],
                "decode_tokens_per_s_user": 1.0 / tpot,
                "decode_tokens_per_s_total": estimate["batch"] / tpot,
                "memory_gb_per_device": estimate["memory_bytes"]["mean"] / 1e9 / devices,
            }
        )
    return rows


def _point(estimate: Mapping[str, Any]) -> tuple[Any, Any]:
    return estimate["batch"], estimate["prompt_tokens"]


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
