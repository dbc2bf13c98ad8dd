"""What a result shows of itself: a few lines of text, or HTML in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from specplan.notebook.tables import html_table, plan_words, result_rows, text_table
from specplan.planner.explain.what_if_words import table_lines

if TYPE_CHECKING:
    from specplan.planner.problem.schema import Problem
    from specplan.result import Result

MOST_LINES, MOST_HTML_ROWS = 7, 40
"""Of the table of a card as text and as HTML; `Result.table` has all."""
_DECIDED = (
    "batch", "prompt_tokens", "tpot_ms_plain", "tpot_ms", "decode_gain", "request_gain", "ttft_ms",
    "decode_tokens_per_s_user",
)  # fmt: skip
_UNDECIDED = ("drafter", "batch", "acceptance", "draft_tokens", "gain", "pays_from")


def problem_line(problem: Problem) -> str:
    """A problem in a line: the target, the device, what runs it, the objective."""
    target = problem.models.target.path.name
    backends = ", ".join(problem.all_backends)
    return f"{target} on {problem.device} | {backends} | objective {problem.objective}"


def headline(result: Result) -> str:
    """The decision in a sentence."""
    if result.verdict == "undecided":
        names = ", ".join(result.search.undecided)
        return f"Undecided: no acceptance is known for {names}; measure it, or assume a rate."
    chosen, gain = result.search.chosen, result.speedup
    if chosen.method == "autoregressive":
        return "No speculation: no plan that drafts is faster beyond the error."
    interval = f"{gain.mean:.2f} times as fast ({gain.low:.2f} to {gain.high:.2f})"
    return f"Use {plan_words(chosen.method, chosen.words)}: {interval} as no speculation"


def text_card(result: Result) -> str:
    """A result in at most a dozen lines."""
    rows = result_rows(result)
    table = text_table(rows, _DECIDED) if result.verdict == "decided" else list(table_lines(rows))
    lines = [problem_line(result.problem), headline(result), "", *table[:MOST_LINES]]
    if len(table) > MOST_LINES:
        lines.append(f"{len(table) - MOST_LINES} more lines: .table()")
    return "\n".join([*lines, _bundle(result)]).rstrip()


def html_card(result: Result) -> str:
    """The same as HTML, with no style of its own."""
    rows = result_rows(result)
    columns = _DECIDED if result.verdict == "decided" else _UNDECIDED
    rest = len(rows) - MOST_HTML_ROWS
    more = f"<p>{rest} more rows: <code>.table()</code></p>" if rest > 0 else ""
    return (
        f"<div><p>{escape(problem_line(result.problem))}</p>"
        f"<p><strong>{escape(headline(result))}</strong></p>"
        f"{html_table(rows[:MOST_HTML_ROWS], columns)}{more}<p>{escape(_bundle(result))}</p></div>"
    )


def _bundle(result: Result) -> str:
    return "" if result.bundle is None else f"Bundle: {result.bundle.folder}"
