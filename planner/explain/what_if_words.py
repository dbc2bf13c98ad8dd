"""The table of what drafting would gain, as text: the answer where no acceptance is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def undecided_lines(explanation: Mapping[str, Any]) -> Iterator[str]:
    """Why there is no decision, what it would take, and the next steps.

    Args:
        explanation: from `summarise` or `explain`, with the verdict `undecided`.
    """
    rows = explanation["what_if"]
    names = list(dict.fromkeys(row["drafter"] for row in rows))
    first = names[0]
    yield (
        f"No decision: no acceptance is known for {', '.join(names)}, so nothing could be "
        "compared with no speculation."
    )
    yield ""
    yield "Columns: how often a draft token is accepted, given that those before it were."
    yield "Cells: speed of a request over no speculation, prompt included, and draft tokens per"
    yield 'step (K) of the best plan. "pays from": where drafting begins to win beyond the error.'
    yield ""
    yield from table_lines(rows)
    yield ""
    yield f"Times: {explanation['assumptions'][0]}."
    yield ""
    yield "Next"
    yield "  Measure: run your engine with a drafter, then"
    yield (
        f"           specplan import acceptance http://HOST:8000/metrics --drafter {first} "
        f"--out {first}.json"
    )
    yield f"           and state it in the problem: acceptance: {{{first}: {first}.json}}"
    yield (
        f"  Assume:  acceptance: {{{first}: 0.75}} in the problem; every number that follows is "
        "marked as assumed"
    )
    yield "  Explore: specplan whatif PROBLEM --acceptance 0.3..0.9 --batch 1,16,64"


def table_lines(rows: Rows, keys: Sequence[str] = ()) -> Iterator[str]:
    """One line per drafter and load, one column per acceptance.

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
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    left = [not all(row[column].isdigit() for row in cells[1:]) for column in range(len(names))]
    for line in cells:
        yield (
            "  "
            + "  ".join(
                text.ljust(width) if column < len(names) and left[column] else text.rjust(width)
                for column, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
        )


def _cell(row: Mapping[str, Any]) -> str:
    if row["draft_tokens"]:
        return f"{row['gain']:.2f}x K{row['draft_tokens']}"
    return "no memory" if row["words"] == "does not fit" else "-"
