"""`specplan bench`: a bundle's plan against no speculation and stock `transformers`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.loaded import (
    BurstinessOption,
    RateOption,
    RequestsOption,
    RunningOption,
    TraceOption,
    serve_bundle,
)
from specplan.cli.options import JsonOption, LimitOption, PromptsOption
from specplan.cli.output import print_json, print_table
from specplan.cli.planned import (
    ModelOption,
    PlannedArgument,
    ProblemOption,
    checkpoints,
    is_plan_text,
    read_plan,
)
from specplan.ir.errors import RegressionError, UsageError

if TYPE_CHECKING:
    from specplan.measure.bench.bench import Comparison, Line
    from specplan.planner.problem.limits import Limits


_ALONE = ("--batch", "--limit", "--repeats", "--kinds", "--no-stock", "--require-speedup")
"""Flags of a bench of one batch after the other."""
_LOADED = ("--requests", "--burstiness", "--running")
"""Flags of a bench of requests that arrive."""


def bench(
    bundle: PlannedArgument,
    problem: ProblemOption = None,
    model: ModelOption = None,
    prompts: PromptsOption = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size.")] = 1,
    limit: LimitOption = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each prompt per plan.")] = 3,
    kinds: Annotated[
        bool,
        typer.Option("--kinds", help="Also run the best plan of every other kind of drafting."),
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
    rate: RateOption = None,
    trace: TraceOption = None,
    requests: RequestsOption = 100,
    burstiness: BurstinessOption = 1.0,
    running: RunningOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a bundle's plan, or a plan text, beside no speculation and transformers.

    A plan text is run for a problem (--problem), which also predicts its speed, or on checkpoints
    (--model) with --prompts. With --rate or --trace, the bundle's plan serves requests that arrive.
    """
    loaded = rate is not None or trace is not None
    one_by_one = (batch != 1, limit, repeats != 3, kinds, not stock, require_speedup)
    _refuse_ignored(loaded, one_by_one, (requests != 100, burstiness != 1.0, running))
    if loaded:
        _refuse_plan_text(is_plan_text(bundle) or problem is not None or bool(model))
        serve_bundle(bundle, (rate, trace, requests, burstiness, running), prompts, json)
        return
    runs = {"batch": batch, "limit": limit, "repeats": repeats, "stock": stock}
    if is_plan_text(bundle) or problem is not None or model:
        if kinds:
            raise UsageError(
                "only the plan of a bundle has other kinds to compare with",
                where="--kinds",
                remedy="Leave it out.",
            )
        result, limits = _bench_text(bundle, problem, checkpoints(model or ()), prompts, runs)
    else:
        result, limits = _bench_bundle(bundle, prompts, {**runs, "kinds": kinds})
    if json:
        print_json(asdict(result))
    else:
        _print(result)
        _print_summary(result)
    _check(result, limits, require_speedup)


def _refuse_plan_text(given: bool) -> None:
    if given:
        raise UsageError(
            "only the plan of a bundle is served", where="--rate", remedy="Give a bundle."
        )


def _refuse_ignored(loaded: bool, alone: Sequence[object], load: Sequence[object]) -> None:
    """Refuse flags of the other kind of bench.

    Args:
        loaded: whether requests arrive.
        alone: what `_ALONE` were given; false or None where they were not.
        load: what `_LOADED` were given, likewise.

    Raises:
        UsageError: names the first one.
    """
    given = zip(_ALONE, alone, strict=True) if loaded else zip(_LOADED, load, strict=True)
    flag = next((name for name, value in given if value not in (None, False)), None)
    if flag is not None:
        raise UsageError(
            f"it has no part in a bench {'with' if loaded else 'without'} --rate or --trace",
            where=flag,
            remedy="Leave it out.",
        )


def _bench_bundle(
    bundle: Path, prompts: Path | None, runs: Mapping[str, Any]
) -> tuple[Comparison, Limits]:
    """The comparison of a bundle, and the limits of its problem."""
    from specplan import api
    from specplan.bundles.writing import open_bundle
    from specplan.planner.problem.errors import Origin
    from specplan.planner.problem.loading import problem_form
    from specplan.progress import terminal_progress

    opened = open_bundle(bundle)
    with terminal_progress() as progress:
        result = api.bench(opened, prompts=prompts, progress=progress, **runs)
    return result, problem_form(opened.problem, Origin()).limits


def _bench_text(
    text: Path,
    problem: Path | None,
    models: Mapping[str, Path],
    prompts: Path | None,
    runs: Mapping[str, Any],
) -> tuple[Comparison, Limits]:
    """The comparison of a plan text, and the limits of its problem.

    Raises:
        UsageError: it is no plan text, or there is not one of a problem and checkpoints.
    """
    from specplan import api
    from specplan.edited import bench_edited, problem_of_models, write_edited
    from specplan.problems import as_problem
    from specplan.progress import terminal_progress
    from specplan.quality.calibrating import certificate_beside

    if (problem is None) == (not models) or (models and prompts is None):
        raise UsageError(
            "a plan text needs a problem, or checkpoints and prompts",
            where="specplan bench",
            remedy="Give --problem FILE, or --model target=DIR ... --prompts FILE.",
        )
    plan = read_plan(text)
    if problem is None:
        assert prompts is not None, "checked above"
        checked = problem_of_models(models, prompts, runs["batch"])
    else:
        checked = as_problem(problem)
        if prompts is not None:
            workload = checked.workload.model_copy(update={"prompts": prompts.resolve()})
            checked = checked.model_copy(update={"workload": workload})
    with terminal_progress() as progress:
        if problem is None:
            return bench_edited(plan, checked, progress=progress, **runs), checked.limits
        with tempfile.TemporaryDirectory(prefix="specplan-") as work:
            certified = certificate_beside(text)
            bundle = write_edited(
                plan, checked, Path(work) / "bundle", progress, certified=certified
            )
            return api.bench(bundle, progress=progress, **runs), checked.limits


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
                "-" if line.predicted is None else line.predicted.words(".0f"),
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
        predicted = f"predicted {line.predicted.words('.0f')} tokens/s, "
    stock = (
        ""
        if line.against_stock is None
        else f" and {line.against_stock:.2f} times that of transformers.generate"
    )
    return (
        f"Chosen: {line.name}: {predicted}measured {line.tokens_per_second:.0f} tokens/s; "
        f"{line.against_baseline:.2f} times the speed without speculation{stock}."
    )


def _check(result: Comparison, limits: Limits, required: float | None) -> None:
    """Raise an error if the chosen plan misses a limit of the problem or the required speedup."""
    from specplan.measure.bench.bench import missed_limits

    line = result.line(result.chosen)
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
