"""`specplan whatif`: what drafting would gain, over acceptance, batch, device and any key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError

_STEP = 0.1
_MOST_VALUES = 200


@takes_problem()
def whatif(
    problem: ProblemSource,
    acceptance: Annotated[
        str | None,
        typer.Option(
            metavar="A,B|A..B[:STEP]",
            help="Acceptance of a draft token after accepted ones: 0.5,0.7 or 0.3..0.9. "
            "Default: the problem's own acceptance, or 0.5..0.9.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Devices to compare, such as 8xh200,4xb200."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=A,B",
            help="Values of any key, such as workload.prompt_tokens=1024,8192; may be repeated.",
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows as CSV.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Plot the speedup: .png, .svg or .pdf."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Sweep acceptance, batch, device or any key: the speedup, and where drafting starts to pay."""
    from specplan.ir.files import write_atomic
    from specplan.planner.explain.what_if_words import table_lines
    from specplan.progress import terminal_progress
    from specplan.sweeping import as_csv, draw, sweep

    swept = _swept(device, settings or [])
    acceptances = None if acceptance is None else _numbers(acceptance)
    with terminal_progress() as progress:
        rows = sweep(_variants(problem, swept), acceptances, progress)
    keys = [key for key, values in swept.items() if len(values) > 1]
    if plot is not None:
        draw(rows, plot, keys)
    if csv is not None:
        write_atomic(csv, as_csv(rows, keys))
    if json:
        print_json({"rows": rows})
        return
    print("Speed of a request over no speculation, prompt included, and draft tokens per step (K),")
    print("by how often a draft token is accepted, given those before it (an assumption).\n")
    print("\n".join(table_lines(rows, keys)))
    assumed = {row["drafter"]: row["assumed"] for row in rows if row["assumed"]}
    for drafter, text in assumed.items():
        print(f"\nAssumed of {drafter}: {text}.")
    for name, path in (("Rows", csv), ("Plot", plot)):
        if path is not None:
            print(f"\n{name}: {path}", end="")
    if csv or plot:
        print()


def _variants(
    problem: ProblemSource, swept: dict[str, list[str]]
) -> Iterator[tuple[dict[str, str], Any]]:
    """The problem with every combination of the swept values."""
    for values in product(*swept.values()):
        chosen = dict(zip(swept, values, strict=True))
        settings = tuple(f"{key}={value}" for key, value in chosen.items())
        yield chosen, replace(problem, settings=settings).problem()


def _swept(device: str | None, settings: list[str]) -> dict[str, list[str]]:
    """Keys with the texts of their values.

    Raises:
        UsageError: a setting is not `key=values`, or a key is given twice.
    """
    swept: dict[str, list[str]] = {} if device is None else {"device": _split(device)}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not text or key in swept:
            raise UsageError(
                "a key is given twice" if key in swept else "it is not KEY=VALUES",
                where=f"--set {setting}",
                remedy="Write the dotted key and its values: --set workload.prompt_tokens=512,2048",
            )
        swept[key] = _split(text)
    return swept


def _split(text: str) -> list[str]:
    """Values between commas; commas inside of brackets belong to one value."""
    return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text)]


def _numbers(text: str) -> list[float]:
    """`0.5,0.7`, `0.3..0.9` or `0.3..0.9:0.05` as probabilities.

    Raises:
        UsageError: it is none of these.
    """
    try:
        numbers = [number for part in text.split(",") for number in _range(part)]
    except (ValueError, OverflowError):
        numbers = []
    if not numbers or any(not 0.0 <= number <= 1.0 for number in numbers):
        raise UsageError(
            f'must be probabilities from 0 to 1, got "{text}"',
            where="--acceptance",
            remedy="Write --acceptance 0.5,0.7,0.9 or --acceptance 0.3..0.9, with a step as in "
            "0.3..0.9:0.05. What is known of a drafter: --set acceptance.NAME=FILE",
        )
    return list(dict.fromkeys(numbers))


def _range(text: str) -> list[float]:
    ends, _, step_text = text.partition(":")
    if ".." not in ends:
        return [float(text)]
    low, high = map(float, ends.split(".."))
    step = float(step_text) if step_text else _STEP
    count = int((high - low) / step + 1e-9) if step > 0.0 else -1
    if not 0 <= count <= _MOST_VALUES:
        raise ValueError
    return [round(low + place * step, 10) for place in range(count + 1)]
