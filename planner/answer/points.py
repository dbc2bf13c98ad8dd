"""The numbers of every operating point as cells of tables, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specplan.planner.answer.decision import Line
from specplan.planner.answer.names import milliseconds, times
from specplan.planner.explain.numbers import bytes_words, seconds_words, short

Point = Mapping[str, Any]
_WAYS = 2
"""Ways to fit that are named in words."""
QUANTITY_HEADS = ("", "without", "with", "gain", "")


class Column(NamedTuple):
    """A column of the table of operating points.

    Attributes:
        head: its heading in two lines; neighbours of one group share the first.
        cells: one per operating point; all empty where nothing is known.
        rank: columns of higher rank are left out first where space is short.
        title: the heading in one line, where that is not `head` alone.
    """

    head: tuple[str, str]
    cells: list[str]
    rank: int = 0
    title: str = ""

    @property
    def name(self) -> str:
        """The heading in one line."""
        return self.title or " ".join(filter(None, self.head))


class Matrix(NamedTuple):
    """One quantity over a grid: rows are batch sizes, columns prompt lengths."""

    title: str
    prompts: list[int]
    rows: list[tuple[int, list[str]]]


def prompts_of(explanation: Mapping[str, Any]) -> list[int]:
    """The prompt lengths of all operating points."""
    return sorted({point["prompt_tokens"] for point in explanation["points"]})


def columns(explanation: Mapping[str, Any], points: Sequence[Point]) -> list[Column]:
    """The table of operating points, without columns in which nothing is known.

    Args:
        explanation: from `explain`.
        points: those of the explanation to show.
    """
    devices = explanation["setting"]["devices"]
    edges = [pays_from(explanation, point) for point in points]
    every = [
        Column(("requests", ""), [str(point["batch"]) for point in points]),
        Column(("K", ""), [str(point["draft_tokens"] or "-") for point in points]),
        Column(("TPOT ms", "without"), [milliseconds(p["plain_tpot"]["mean"]) for p in points]),
        Column(("TPOT ms", "with"), [milliseconds(p["tpot"]["mean"]) for p in points]),
        Column(("decode", "gain"), [times(p["decode_gain"]["mean"]) for p in points]),
        Column(("request", "gain"), [times(p["request_gain"]["mean"]) for p in points]),
        Column(("TTFT", ""), [seconds_words(p["ttft"]["mean"]) for p in points], 2),
        Column(("tokens/s", "per user"), [short(1 / p["tpot"]["mean"]) for p in points], 1),
        Column(("tokens/s", "in all"), [short(p["batch"] / p["tpot"]["mean"]) for p in points], 1),
        Column(
            ("memory", "per GPU" if devices > 1 else ""),
            [bytes_words(p["memory_bytes"]["mean"] / devices) for p in points],
            3,
        ),
        Column(
            ("pays from", "tokens/step"), [e for e, _ in edges], 4, "pays from, tokens per step"
        ),
        Column(("now", ""), [now for _, now in edges], 4, "now, tokens per step"),
    ]
    return [column for column in every if any(column.cells)]


def quantities(explanation: Mapping[str, Any], point: Point) -> Iterator[tuple[str, ...]]:
    """A row per quantity of one point, under `QUANTITY_HEADS`."""
    plain, own, count = point["plain_tpot"]["mean"], point["tpot"]["mean"], point["batch"]
    gain = times(point["decode_gain"]["mean"])
    yield "time per output token (TPOT)", seconds_words(plain), seconds_words(own), gain, ""
    yield "tokens/s per user, decoding", short(1 / plain), short(1 / own), gain, ""
    if count > 1:
        yield f"tokens/s, {count} requests", short(count / plain), short(count / own), gain, ""
    request = times(point["request_gain"]["mean"])
    yield "whole request, prompt included", "", "", request, ""
    first = (seconds_words(point[key]["mean"]) for key in ("plain_ttft", "ttft"))
    yield "first token (TTFT)", *first, "", ""
    edge, _ = pays_from(explanation, point)
    pays = f"pays from {edge}" if edge else ""
    yield "tokens per step", "1.00", short(point["tokens_per_step"]["mean"]), "", pays
    devices = explanation["setting"]["devices"]
    memory = (point[key]["mean"] / devices for key in ("plain_memory_bytes", "memory_bytes"))
    name = "memory per device" if devices > 1 else "memory"
    yield name, *map(bytes_words, memory), "", ""


def matrices(
    explanation: Mapping[str, Any],
    batches: Sequence[int],
    prompts: Sequence[int],
    *,
    requests: bool = False,
) -> Iterator[Matrix]:
    """The gain with K and TPOT over a grid.

    Args:
        explanation: from `explain`.
        batches: of the rows.
        prompts: of the columns.
        requests: also the gain of whole requests, with TTFT.
    """
    titles: Sequence[tuple[str, Callable[[Point], str]]] = (
        ("Decode gain and draft tokens per step (K)", _gain),
        ("TPOT in ms, without > with", _tpot),
        *([("Gain of a whole request, and TTFT", _request)] if requests else []),
    )
    by_place = {(point["batch"], point["prompt_tokens"]): point for point in explanation["points"]}
    for title, cell in titles:
        rows = []
        for batch in batches:
            at = [by_place.get((batch, prompt)) for prompt in prompts]
            rows.append((batch, ["no memory" if point is None else cell(point) for point in at]))
        yield Matrix(title, list(prompts), rows)


def _gain(point: Point) -> str:
    count = point["draft_tokens"]
    return f"{times(point['decode_gain']['mean'])} K{count}" if count else "-"


def _tpot(point: Point) -> str:
    own = milliseconds(point["tpot"]["mean"])
    return f"{milliseconds(point['plain_tpot']['mean'])} > {own}" if point["draft_tokens"] else own


def _request(point: Point) -> str:
    return f"{times(point['request_gain']['mean'])}  {seconds_words(point['ttft']['mean'])}"


def pays_from(explanation: Mapping[str, Any], point: Point) -> tuple[str, str]:
    """From how many tokens per step drafting pays at a point, and how many it has; or nothing."""
    entry = acceptance_entry(explanation, point)
    if entry is None or not entry.get("tokens"):
        return "", ""
    return short(entry["tokens"][0]["mean"]), short(point["tokens_per_step"]["mean"])


def acceptance_entry(explanation: Mapping[str, Any], point: Point) -> Mapping[str, Any] | None:
    """The break-even by acceptance of the round that runs at a point; None where it has none."""
    if not point["draft_tokens"]:
        return None
    for part in explanation.get("break_even", ()):
        if (part["method"], part["words"]) != (point["method"], point["words"]):
            continue
        for entry in part["points"]:
            same = all(entry[key] == point[key] for key in ("batch", "prompt_tokens"))
            if entry["unknown"] == "acceptance" and same:
                return entry  # type: ignore[no-any-return]
    return None


def remarks(explanation: Mapping[str, Any], *, whole: bool = False) -> Iterator[Line]:
    """What is to be said below the numbers: points without memory, and what speeds count.

    Args:
        explanation: from `explain`.
        whole: all that is known of a grid is shown, where else two matrices are.
    """
    grid = len(prompts_of(explanation)) > 1
    for words in memory_words(explanation):
        yield Line(words, "assumed")
    if (whole or not grid) and any(point["batch"] > 1 for point in explanation["points"]):
        yield Line(
            "Tokens/s count decoding alone; TTFT is that of requests that all arrive at once.",
            "faint",
        )


def memory_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """Operating points that do not fit, alone or with the drafter, and what would make them fit."""
    for drafting in (False, True):
        points = [one for one in explanation["unfit"] if one["drafting"] is drafting]
        if not points:
            continue
        first = points[0]
        point = f"{first['batch']} x {first['prompt_tokens']}"
        named = f"{point} (requests x prompt)"
        if len(points) > 1:
            named = f"{len(points)} points (requests x prompt), such as {point}: it"
        needs = f"{bytes_words(first['needed_bytes'])} of {bytes_words(first['allowed_bytes'])}"
        ways = f"{' or '.join(first['ways'][:_WAYS])}"
        if not first["enough"]:
            ways = f"more than one of: {'; '.join(first['ways'])}"
        text = f"Out of memory, left out: {named} needs {needs}."
        if drafting:
            text = (
                f"No memory for the drafter: {named} needs {needs}; there the plan runs with it "
                "unloaded."
            )
        yield f"{text} To fit: {ways}."
