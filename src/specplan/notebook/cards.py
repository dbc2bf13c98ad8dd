"""What a result shows of itself: a few lines of text, or HTML in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from specplan.notebook.tables import html_table, result_rows, text_table
from specplan.planner.answer.decision import gain_lines, warnings
from specplan.planner.answer.names import advice, problem_name
from specplan.planner.explain.what_if_words import no_decision, table_lines

if TYPE_CHECKING:
    from specplan.result import Result

MOST_LINES, MOST_HTML_ROWS = 7, 40
"""Of the table of a card as text and as HTML; `Result.table` has all."""
_DECIDED = (
    "batch", "prompt_tokens", "draft_tokens", "tpot_ms_plain", "tpot_ms", "decode_gain",
    "request_gain", "ttft_ms", "decode_tokens_per_s_user",
)  # fmt: skip
_UNDECIDED = ("drafter", "batch", "acceptance", "draft_tokens", "gain", "pays_from")


def headlines(result: Result) -> list[str]:
    """The decision in sentences, those of the screen."""
    explanation = result.answer
    if result.verdict == "undecided":
        return [no_decision(explanation)]
    lines = (*gain_lines(explanation), *warnings(explanation))
    return [advice(explanation), *(line.text for line in lines if line.tone != "faint")]


def text_card(result: Result) -> str:
    """A result in at most a dozen lines."""
    rows = result_rows(result)
    table = text_table(rows, _DECIDED) if result.verdict == "decided" else list(table_lines(rows))
    lines = [problem_name(result.answer), *headlines(result), "", *table[:MOST_LINES]]
    if len(table) > MOST_LINES:
        lines.append(f"{len(table) - MOST_LINES} more lines: .table()")
    return "\n".join([*lines, _bundle(result)]).rstrip()


def html_card(result: Result) -> str:
    """The same as HTML, with no style of its own."""
    rows = result_rows(result)
    columns = _DECIDED if result.verdict == "decided" else _UNDECIDED
    rest = len(rows) - MOST_HTML_ROWS
    more = f"<p>{rest} more rows: <code>.table()</code></p>" if rest > 0 else ""
    first, *others = map(escape, headlines(result))
    return (
        f"<div><p>{escape(problem_name(result.answer))}</p>"
        f"<p><strong>{first}</strong></p>{''.join(f'<p>{line}</p>' for line in others)}"
        f"{html_table(rows[:MOST_HTML_ROWS], columns)}{more}<p>{escape(_bundle(result))}</p></div>"
    )


def _bundle(result: Result) -> str:
    return "" if result.bundle is None else f"Bundle: {result.bundle.folder}"
