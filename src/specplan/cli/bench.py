"""`specplan bench`: a bundle's plan against no speculation and stock `transformers`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.options import BundleArgument, JsonOption
from specplan.cli.output import interval_words, print_json, print_table
from specplan.ir.errors import RegressionError

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.measure.bench.bench import Comparison, Line


def bench(
    bundle: BundleArgument,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prompts in JSON Lines, instead of the problem's."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of prompts.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each prompt per plan.")] = 3,
    kinds: Annotated[
        bool, typer.Option("--kinds", help="Also run the best plan of every other kind.")
    ] = False,
    stock: Annotated[
        bool, typer.Option("--stock/--no-stock", help="Also run stock transformers.")
    ] = True,
    require_speedup: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO", min=0.0, help="Exit with 1 unless the speedup reaches this ratio."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure a bundle's plan beside no speculation and stock transformers."""
    from specplan import api
    from specplan.bundles.writing import open_bundle
    from specplan.progress import terminal_progress

    opened = open_bundle(bundle)
    with terminal_progress() as progress:
        result = api.bench(
            opened,
            prompts=prompts,
            batch=batch,
            limit=limit,
            repeats=repeats,
            kinds=kinds,
            stock=stock,
            progress=progress,
        )
    if json:
        print_json(asdict(result))
    else:
        _print(result)
        _print_summary(result)
    _check(result, opened, require_speedup)


def _print(result: Comparison) -> None:
    print_table(
        (
            "decoding",
            ">tokens/s",
            ">quartiles",
            ">tokens/step",
            ">x plain",
            ">x transformers",
            ">predicted",
            ">error",
            ">outputs differing",
        ),
        [
            (
                line.name,
                f"{line.tokens_per_second:.1f}",
                f"{line.low:.1f} - {line.high:.1f}",
                _number(line.tokens_per_round, ".2f"),
                f"{line.against_baseline:.2f}",
                _number(line.against_stock, ".2f"),
                "-" if line.predicted is None else interval_words(line.predicted, ".0f"),
                _number(line.error, "+.1%"),
                f"{line.differing} of {result.prompts}",
            )
            for line in result.lines
        ],
        title=f"{result.prompts} prompts, {result.output_tokens} tokens each, "
        f"batch {result.batch}, {result.repeats} runs",
    )
    print(f"{result.hardware}; " + ", ".join(f"{k} {v}" for k, v in result.versions.items()))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _print_summary(result: Comparison) -> None:
    """The chosen plan's numbers in a sentence, and those of its compiled rounds."""
    compiled = f"{result.chosen}, compiled"
    for line in result.lines:
        if line.name in (result.chosen, compiled):
            print(_summary(line))


def _summary(line: Line) -> str:
    predicted = ""
    if line.predicted is not None:
        predicted = f"predicted {interval_words(line.predicted, '.0f')} tokens/s, "
    stock = (
        ""
        if line.against_stock is None
        else f" and {line.against_stock:.2f} times that of transformers.generate"
    )
    return (
        f"Chosen: {line.name}: {predicted}measured {line.tokens_per_second:.0f} tokens/s; "
        f"{line.against_baseline:.2f} times the speed without speculation{stock}."
    )


def _check(result: Comparison, bundle: Bundle, required: float | None) -> None:
    """Raise an error if the chosen plan misses a limit of the problem or the required speedup."""
    from specplan.measure.bench.bench import missed_limits
    from specplan.planner.problem.errors import Origin
    from specplan.planner.problem.loading import problem_form

    line = result.line(result.chosen)
    limits = problem_form(bundle.problem, Origin()).limits
    missed = missed_limits(line, limits.ttft, limits.tpot, limits.request_latency)
    if required is not None and line.against_baseline < required:
        missed.append(
            f"{line.against_baseline:.2f} times as fast as plain decoding, "
            f"{required:.2f} is required"
        )
    if missed:
        raise RegressionError(
            f"{line.name}: {'; '.join(missed)}",
            where="specplan bench",
            remedy="Look at `specplan explain`, and measure again on a quiet machine.",
        )
