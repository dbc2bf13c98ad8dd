"""The numbers of the screen: one point, a table over batch sizes, or matrices of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specplan.cli.screen.names import milliseconds, times
from specplan.planner.explain.numbers import bytes_words, seconds_words, short
from specplan.planner.explain.what_if_words import spread_out

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

MOST_ROWS, MOST_MATRIX_ROWS = 8, 4
"""Batch sizes in a table and in each matrix, unless all are wanted."""
Point = Mapping[str, Any]


def numbers(
    explanation: Mapping[str, Any], console: Console, *, whole: bool
) -> Iterator[RenderableType]:
    """The tables of a decided problem, as wide as the console allows.

    Args:
        explanation: from `explain`.
        console: whose width decides which columns are there.
        whole: all batch sizes; else at most as many as leave the screen short.
    """
    points = explanation["points"]
    prompts = {point["prompt_tokens"] for point in points}
    if len(points) == 1:
        yield _one_point(explanation, points[0])
    elif len(prompts) == 1:
        yield from _by_batch(explanation, console, whole)
    else:
        yield from _matrices(explanation, console, whole)


def pays_from(explanation: Mapping[str, Any], point: Point) -> tuple[str, str]:
    """From how many tokens per step drafting pays at a point, and how many it has; or nothing."""
    if not point["draft_tokens"]:
        return "", ""
    for part in explanation.get("break_even", ()):
        if (part["method"], part["words"]) != (point["method"], point["words"]):
            continue
        for entry in part["points"]:
            same = all(entry[key] == point[key] for key in ("batch", "prompt_tokens"))
            if entry["unknown"] == "acceptance" and same and entry.get("tokens"):
                return short(entry["tokens"][0]["mean"]), short(point["tokens_per_step"]["mean"])
    return "", ""


def _grid(*, head: bool) -> Table:
    from rich.table import Table

    return Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=head, header_style="dim"
    )


def _one_point(explanation: Mapping[str, Any], point: Point) -> Table:
    """A line per quantity: without and with speculation, and the gain."""
    table = _grid(head=True)
    for name, right in (
        ("", False),
        ("without", True),
        ("with", True),
        ("gain", True),
        ("", False),
    ):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    plain, own, count = point["plain_tpot"]["mean"], point["tpot"]["mean"], point["batch"]
    gain = times(point["decode_gain"]["mean"])
    table.add_row("time per output token (TPOT)", seconds_words(plain), seconds_words(own), gain)
    table.add_row("tokens/s per user, decoding", short(1 / plain), short(1 / own), gain)
    if count > 1:
        table.add_row(f"tokens/s, {count} requests", short(count / plain), short(count / own), gain)
    table.add_row("whole request, prompt included", "", "", times(point["request_gain"]["mean"]))
    table.add_row(
        "first token (TTFT)",
        *(seconds_words(point[key]["mean"]) for key in ("plain_ttft", "ttft")),
    )
    edge, _ = pays_from(explanation, point)
    table.add_row(
        "tokens per step",
        "1.00",
        short(point["tokens_per_step"]["mean"]),
        "",
        f"pays from {edge}" if edge else "",
    )
    devices = explanation["setting"]["devices"]
    table.add_row(
        "memory per device" if devices > 1 else "memory",
        *(
            bytes_words(point[key]["mean"] / devices)
            for key in ("plain_memory_bytes", "memory_bytes")
        ),
    )
    return table


def _by_batch(
    explanation: Mapping[str, Any], console: Console, whole: bool
) -> Iterator[RenderableType]:
    """A row per batch size; columns that do not fit are left out, the last ones first."""
    points = explanation["points"]
    rows = spread_out(points, len(points) if whole else MOST_ROWS)
    devices = explanation["setting"]["devices"]
    edges = [pays_from(explanation, point) for point in rows]
    columns: list[tuple[str, list[str], int]] = [
        ("requests", [str(point["batch"]) for point in rows], 0),
        ("K", [str(point["draft_tokens"] or "-") for point in rows], 0),
        ("TPOT ms\nwithout", [milliseconds(p["plain_tpot"]["mean"]) for p in rows], 0),
        ("\nwith", [milliseconds(p["tpot"]["mean"]) for p in rows], 0),
        ("decode\ngain", [times(p["decode_gain"]["mean"]) for p in rows], 0),
        ("request\ngain", [times(p["request_gain"]["mean"]) for p in rows], 0),
        ("TTFT\n", [seconds_words(p["ttft"]["mean"]) for p in rows], 2),
        ("tokens/s\nper user", [short(1 / p["tpot"]["mean"]) for p in rows], 1),
        ("\nin all", [short(p["batch"] / p["tpot"]["mean"]) for p in rows], 1),
        (
            "memory\nper GPU" if devices > 1 else "memory\n",
            [bytes_words(p["memory_bytes"]["mean"] / devices) for p in rows],
            3,
        ),
        ("pays from\ntokens/step", [edge for edge, _ in edges], 4),
        ("now\n", [now for _, now in edges], 4),
    ]
    columns = [one for one in columns if any(one[1])]
    for rank in (9, 4, 3, 2, 1):
        columns = [one for one in columns if one[2] < rank]
        table = _grid(head=True)
        for name, _, _ in columns:
            table.add_column(name, justify="right", no_wrap=True)
        for cells in zip(*(column for _, column, _ in columns), strict=True):
            table.add_row(*cells)
        if console.measure(table).maximum + 2 <= console.width:
            break
    yield table
    yield from _more((len(points) - len(rows), "batch sizes"))


def _matrices(
    explanation: Mapping[str, Any], console: Console, whole: bool
) -> Iterator[RenderableType]:
    """Rows batch sizes, columns prompt lengths: the gain with K, then TPOT."""

    def gain(point: Point) -> str:
        count = point["draft_tokens"]
        return f"{times(point['decode_gain']['mean'])} K{count}" if count else "-"

    def tpot(point: Point) -> str:
        own = milliseconds(point["tpot"]["mean"])
        return (
            f"{milliseconds(point['plain_tpot']['mean'])} > {own}" if point["draft_tokens"] else own
        )

    def request(point: Point) -> str:
        return f"{times(point['request_gain']['mean'])}  {seconds_words(point['ttft']['mean'])}"

    titles: Sequence[tuple[str, Callable[[Point], str]]] = (
        ("Decode gain and draft tokens per step (K)", gain),
        ("TPOT in ms, without > with", tpot),
        *([("Gain of a whole request, and TTFT", request)] if whole else []),
    )
    points = explanation["points"]
    batches = sorted({point["batch"] for point in points})
    prompts = sorted({point["prompt_tokens"] for point in points})
    rows = spread_out(batches, len(batches) if whole else MOST_MATRIX_ROWS)
    columns = spread_out(prompts, len(prompts) if whole else max(2, (console.width - 12) // 15))
    by_place = {(point["batch"], point["prompt_tokens"]): point for point in points}
    for title, cell in titles:
        yield f"[bold]{title}[/bold]; rows requests, columns prompt tokens"
        table = _grid(head=True)
        table.add_column("", justify="right", no_wrap=True)
        for prompt in columns:
            table.add_column(str(prompt), justify="right", no_wrap=True)
        for batch in rows:
            at = [by_place.get((batch, prompt)) for prompt in columns]
            table.add_row(str(batch), *("no memory" if p is None else cell(p) for p in at))
        yield table
    counts = (
        (len(batches) - len(rows), "batch sizes"),
        (len(prompts) - len(columns), "prompt lengths"),
    )
    yield from _more(*counts)


def _more(*counts: tuple[int, str]) -> Iterator[str]:
    """What was left out to keep the screen short."""
    parts = [f"{count} more {what}" for count, what in counts if count > 0]
    if parts:
        yield f"[dim]{' and '.join(parts)}: --show all[/dim]"
