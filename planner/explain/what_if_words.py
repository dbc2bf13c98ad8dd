"""The table of what drafting would gain, as text: the answer where no acceptance is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specplan.planner.explain.numbers import Entry
from specplan.planner.search.what_if import NO_MEMORY

Rows = Sequence[Mapping[str, Any]]
MOST_LINES = 13
"""Of the table on a screen that is to stay short."""
MOST_PROMPTS = 4
EXPLORE_COMMAND = "specplan whatif PROBLEM --acceptance 0.3..0.9"
WHOLE_TABLE = (
    "Columns: how often a draft token is accepted, given that those before it were.",
    "Cells: speed of a request over no speculation, prompt included, and draft tokens per",
    'step (K) of the best plan. "pays from": where drafting begins to win beyond the error.',
)
"""How to read the table that `table_lines` writes."""
MATRIX_ACCEPTANCE = 0.7
"""Whose gain a matrix over prompt lengths shows."""


def undecided_lines(explanation: Mapping[str, Any], *, whole: bool = True) -> Iterator[str]:
    """Why there is no decision, what it would take, and the next steps.

    Args:
        explanation: from `summarise` or `explain`, with the verdict `undecided`.
        whole: every operating point; else a matrix over prompt lengths where there are several,
            and no more batch sizes than leave the text short.
    """
    rows = explanation["what_if"]
    names = drafters_of(explanation)
    first = names[0]
    yield no_decision(explanation)
    yield ""
    yield from (_whole_table(rows) if whole else _short_table(rows, len(names)))
    yield ""
    times, _, engine = explanation["assumptions"][0].partition("; ")
    yield f"Times: {times}."
    if engine:
        yield f"Engine: {engine}."
    yield ""
    yield "Next"
    yield "  Measure: run your engine with a drafter, then"
    yield f"           {import_command(first)}"
    yield f"           and state it in the problem: acceptance: {{{first}: {first}.json}}"
    yield f"  Assume:  acceptance: {{{first}: 0.75}} in the problem, or acceptance: prior"
    yield "           (published figures); every number that follows is marked as assumed"
    yield f"  Explore: {EXPLORE_COMMAND}"


def drafters_of(explanation: Mapping[str, Any]) -> list[str]:
    """The drafters of an undecided problem."""
    return list(dict.fromkeys(row["drafter"] for row in explanation["what_if"]))


def import_command(drafter: str) -> str:
    """The command that reads a drafter's acceptance from a running engine."""
    return (
        f"specplan import acceptance http://HOST:8000/metrics --drafter {drafter} "
        f"--out {drafter}.json"
    )


def no_decision(explanation: Mapping[str, Any]) -> str:
    """Why there is no decision, in a sentence."""
    return (
        f"No decision: no acceptance is known for {', '.join(drafters_of(explanation))}, so "
        "nothing could be compared with no speculation."
    )


def _whole_table(rows: Rows) -> Iterator[str]:
    yield from WHOLE_TABLE
    yield ""
    yield from table_lines(rows)


def _short_table(rows: Rows, drafters: int) -> Iterator[str]:
    """The same with fewer batch sizes, and of several prompt lengths a matrix."""
    batches = sorted({row["batch"] for row in rows})
    shown = spread_out(batches, max(2, MOST_LINES // drafters))
    rows = [row for row in rows if row["batch"] in shown]
    if len({row["prompt_tokens"] for row in rows}) == 1:
        yield from _whole_table(rows)
    else:
        yield from _matrix(rows)
    if len(shown) < len(batches):
        yield f"  {len(batches) - len(shown)} more batch sizes: --show all"


def _matrix(rows: Rows) -> Iterator[str]:
    """A line per drafter and batch size, a column per prompt length."""
    prompts = sorted({row["prompt_tokens"] for row in rows})
    shown = spread_out(prompts, MOST_PROMPTS)
    yield "Columns: prompt tokens. Cells: the acceptance of a draft token from which drafting pays;"
    yield (
        f"the speed of a request over no speculation, and draft tokens per step (K), at "
        f"{MATRIX_ACCEPTANCE:g}."
    )
    yield ""
    lines: dict[tuple[str, int], dict[int, str]] = {}
    for row in rows:
        if row["acceptance"] == MATRIX_ACCEPTANCE:
            pays = "never" if row["pays_from"] is None else f"{row['pays_from']:.2f}"
            cell = _cell(row)
            text = cell if cell == "no memory" else pays if cell == "-" else f"{pays}: {cell}"
            lines.setdefault((row["drafter"], row["batch"]), {})[row["prompt_tokens"]] = text
    cells = [["drafter", "batch", *map(str, shown)]]
    for (drafter, batch), by_prompt in lines.items():
        texts = [by_prompt.get(prompt, "no memory") for prompt in shown]
        cells.append([drafter, str(batch), *texts])
    yield from aligned(cells, [True, False, *[False] * len(shown)])
    rest = "--show all, which has all acceptances too"
    left = len(prompts) - len(shown)
    yield f"  {left} more prompt lengths: {rest}" if left else "  Other acceptances: --show all"


def spread_out(entries: Sequence[Entry], most: int) -> list[Entry]:
    """At most `most` entries, the first and the last among them."""
    if len(entries) <= most:
        return list(entries)
    return [entries[round(place * (len(entries) - 1) / (most - 1))] for place in range(most)]


def table_lines(rows: Rows, keys: Sequence[str] = ()) -> Iterator[str]:
    """The lines of `table_cells`, aligned."""
    cells = table_cells(rows, keys)
    labels = cells[0].index("pays from")
    left = [not all(row[column].isdigit() for row in cells[1:]) for column in range(labels)]
    yield from aligned(cells, [*left, *[False] * (len(cells[0]) - labels)])


def table_cells(rows: Rows, keys: Sequence[str] = ()) -> list[list[str]]:
    """A heading, then one row per drafter and operating point, one column per acceptance.

    Args:
        rows: as `WhatIfRow.as_dict` gives them, with further `keys`.
        keys: what was swept besides, in columns of their own at the left.
    """
    swept = any("prompt" in key for key in keys)
    prompts = not swept and len({row["prompt_tokens"] for row in rows}) > 1
    names = [*keys, "drafter", "batch", *(["prompt_tokens"] if prompts else [])]
    acceptances = list(dict.fromkeys(row["acceptance"] for row in rows))
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(tuple(row[name] for name in names), []).append(row)
    titles = ["prompt" if name == "prompt_tokens" else name for name in names]
    heads = ["own" if one is None else f"{one:g}" for one in acceptances]
    cells = [[*titles, "pays from", *heads]]
    for labels, members in lines.items():
        by_acceptance = {row["acceptance"]: row for row in members}
        pays = members[0]["pays_from"]
        cells.append(
            [
                *map(str, labels),
                "never" if pays is None else f"{pays:.2f}",
                *(_cell(by_acceptance[one]) if one in by_acceptance else "" for one in acceptances),
            ]
        )
    return cells


def aligned(cells: Sequence[Sequence[str]], left: Sequence[bool]) -> Iterator[str]:
    """Lines of a table whose columns are as wide as their widest cell, aligned `left` or right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        texts = (
            text.ljust(width) if to_left else text.rjust(width)
            for text, width, to_left in zip(line, widths, left, strict=True)
        )
        yield f"  {'  '.join(texts)}".rstrip()


def _cell(row: Mapping[str, Any]) -> str:
    if row["draft_tokens"]:
        return f"{row['gain']:.2f}x K{row['draft_tokens']}"
    return "no memory" if row["words"] == NO_MEMORY else "-"
