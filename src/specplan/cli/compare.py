"""`specplan compare`: two decisions side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.result import Result

_COLUMNS = {
    "batch": "requests",
    "prompt_tokens": "prompt",
    "tpot_ms_a": "TPOT a",
    "tpot_ms_b": "TPOT b",
    "decode_gain_b_over_a": "b over a",
    "ttft_ms_a": "TTFT a",
    "ttft_ms_b": "TTFT b",
    "decode_tokens_per_s_a": "tokens/s a",
    "decode_tokens_per_s_b": "tokens/s b",
}


@takes_problem("DIR|PROBLEM", "A bundle, or a problem file.")
def compare(
    source: ProblemSource,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR|PROBLEM", help="Another one to compare it with.", show_default=False
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Two devices to compare, such as 8xh100-sxm,8xh200."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare two bundles or problems, or one problem on two devices, point by point."""
    from specplan.notebook.sweeps import compare as compared
    from specplan.planner.explain.what_if_words import aligned

    names, decisions = zip(*_two(source, other, device), strict=True)
    done = compared(*decisions)
    if json:
        print_json({"a": names[0], "b": names[1], "rows": [dict(row) for row in done.rows]})
        return
    for letter, name, decision in zip("ab", names, decisions, strict=True):
        print(f"{letter}: {name}: {_plan(decision)}")
    print("\nTPOT and TTFT in ms; tokens/s of all requests together, while decoding.\n")
    cells = [[*_COLUMNS.values()]]
    cells += [[_cell(name, row[name]) for name in _COLUMNS] for row in done.rows]
    for line in aligned(cells, [False] * len(_COLUMNS)):
        print(line)


def _plan(decision: Path | Result) -> str:
    """The plan in the words of the screen."""
    from specplan.backends.bundle import load_bundle
    from specplan.bundles.report import reading_report
    from specplan.planner.answer.names import plan_name

    if not isinstance(decision, Path):
        return plan_name(decision.search.chosen.as_dict())
    bundle = load_bundle(decision)
    with reading_report(bundle):
        return plan_name(bundle.report["candidates"][bundle.report["chosen"]])


def _cell(name: str, value: float) -> str:
    if name in ("batch", "prompt_tokens"):
        return str(value)
    if name == "decode_gain_b_over_a":
        return f"{value:.2f}x"
    return f"{value:.3g}" if value < 1e3 else f"{value:.0f}"


def _two(
    source: ProblemSource, other: Path | None, device: str | None
) -> list[tuple[str, Path | Result]]:
    """Both decisions, with what tells them from each other.

    Raises:
        UsageError: there are not two.
    """
    devices = [] if device is None else [name.strip() for name in device.split(",")]
    if other is not None and device is None:
        second = replace(source, path=other)
        return [(str(one.path), _decision(one)) for one in (source, second)]
    if other is None and len(devices) == 2:
        variants = [replace(source, settings=(*source.settings, f"device={d}")) for d in devices]
        return list(zip(devices, map(_decision, variants), strict=True))
    raise UsageError(
        "a comparison needs two bundles, problems or devices",
        remedy="Give two bundles or problem files, or one problem and --device A,B.",
    )


def _decision(source: ProblemSource) -> Path | Any:
    """A bundle as its folder; a problem decided."""
    from specplan import api

    problem = source.problem()
    return problem if isinstance(problem, Path) and problem.is_dir() else api.optimize(problem)
