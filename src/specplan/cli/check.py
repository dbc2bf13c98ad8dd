"""`specplan check`: what became worse, and whether the evidence is good enough to say so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specplan.cli.delivering import (
    BencherOption,
    BenchmarkOption,
    Destinations,
    GithubOption,
    JunitOption,
    MarkdownOption,
    deliver,
    fraction,
    threshold,
)
from specplan.cli.options import BundleArgument, JsonOption, ProblemArgument
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError

check = typer.Typer(
    no_args_is_help=True,
    help="Find what became worse: recorded plans and prices, measured speed, acceptance.",
)

RecordsArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of recorded problems.", show_default=False)
]
BasePythonOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="The python of an environment with another version of specplan."
    ),
]
BatchOption = Annotated[int, typer.Option(min=1, help="Prompts that run together.")]
TokensOption = Annotated[
    int | None,
    typer.Option(min=1, help="Emitted per prompt and run (default: the problem's, at most 32)."),
]
PromptsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="JSON Lines of prompts instead of the problem's."),
]
SeedOption = Annotated[int, typer.Option(help="Of the order of the runs.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Use only so many prompts.")]


@check.command("plans")
def plans(
    folder: RecordsArgument,
    base_python: BasePythonOption = None,
    moved: Annotated[
        str, typer.Option(metavar="PART", help="Prices may move by so much, e.g. 0.1%.")
    ] = "0.1%",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Show what changed, and exit with 0.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Record the plans and prices of now as the right ones.")
    ] = False,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    benchmark_json: BenchmarkOption = None,
    bencher_json: BencherOption = None,
    github: GithubOption = False,
    json: JsonOption = False,
) -> None:
    """Plan recorded problems anew: by the base version too, or against what was recorded."""
    from specplan.checks.plans import check_plans
    from specplan.checks.plans import update as record_anew
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        if update:
            anew = [str(path) for path in record_anew(folder, progress)]
        else:
            found = check_plans(
                folder,
                base_python=base_python,
                moved=fraction(moved),
                changes_allowed=allow_changes,
                progress=progress,
            )
    if update:
        print_json({"recorded": anew}) if json else print("Recorded anew:", *anew, sep="\n  ")
        return
    to = Destinations(markdown, junit, benchmark_json, bencher_json, github, json)
    deliver(found, to, f"If it is meant so: specplan check plans {folder} --update")


@check.command("record")
def record(
    problem: ProblemArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of this record.")],
    json: JsonOption = False,
) -> None:
    """Record a problem with what planning needs of it, and no weights, for `check plans`."""
    from specplan.checks.recording import record as write
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        answer = write(problem, out, progress)
    if json:
        print_json({"record": str(out), "answer": answer})
        return
    print(f"Recorded in {out}: {answer['prices']['chosen']['words']}")


@check.command("speed")
def speed(
    bundle: BundleArgument,
    base: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The bundle to compare with.")
    ] = None,
    base_python: BasePythonOption = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A baseline by `specplan check baseline`."),
    ] = None,
    limit_slowdown: Annotated[
        str, typer.Option("--threshold", metavar="median:PART", help="Slow-down to be caught.")
    ] = "median:5%",
    error: Annotated[
        str, typer.Option(metavar="PART", help="Most of either wrong decision.")
    ] = "2.5%",
    seconds: Annotated[
        float, typer.Option(min=1.0, help="For the decision, loading not included.")
    ] = 150.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="What stays undecided is a regression.")
    ] = False,
    batch: BatchOption = 1,
    output_tokens: TokensOption = None,
    prompts: PromptsOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    benchmark_json: BenchmarkOption = None,
    bencher_json: BencherOption = None,
    github: GithubOption = False,
    json: JsonOption = False,
) -> None:
    """Race a bundle against a base, turn by turn, until it is known whether it is slower."""
    from specplan.checks.running import Load
    from specplan.checks.speed import SpeedTest, check_speed
    from specplan.measure.bench.sequential import Rule
    from specplan.progress import terminal_progress

    test = SpeedTest(
        rule=Rule(threshold(limit_slowdown), fraction(error)),
        load=Load(batch, output_tokens, prompts, limit),
        seconds=seconds,
        seed=seed,
        strict=strict,
    )
    with terminal_progress() as progress:
        found = check_speed(
            bundle,
            base=base,
            base_python=base_python,
            baseline=baseline,
            test=test,
            progress=progress,
        )
    to = Destinations(markdown, junit, benchmark_json, bencher_json, github, json)
    deliver(found, to, "See `specplan explain` of both, and docs/check.md for what was tested.")


@check.command("baseline")
def baseline(
    bundle: BundleArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The baseline to write.")],
    seconds: Annotated[float, typer.Option(min=0.0, help="To measure for, at least.")] = 60.0,
    batch: BatchOption = 1,
    output_tokens: TokensOption = None,
    prompts: PromptsOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Measure how a bundle's plan stands against plain decoding, for `check speed --baseline`."""
    from dataclasses import asdict

    from specplan.checks.baseline import measure_baseline
    from specplan.checks.running import Load
    from specplan.progress import terminal_progress

    load = Load(batch, output_tokens, prompts, limit)
    with terminal_progress() as progress:
        found = measure_baseline(bundle, load=load, seconds=seconds, seed=seed, progress=progress)
    found.save(out)
    if json:
        print_json(asdict(found))
        return
    print(
        f"Baseline: {out} ({found.pairs} pairs over {len(found.log_ratios)} groups, "
        f"known to +-{found.half_width:.1%})"
    )


@check.command("acceptance")
def acceptance(
    base: Annotated[Path, typer.Argument(metavar="BASE.json", help="The older profile.")],
    head: Annotated[
        Path | None, typer.Argument(metavar="[HEAD.json]", help="The newer profile.")
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="PROBLEM.yaml", help="Measure the newer one now on this problem."),
    ] = None,
    limit: LimitOption = None,
    depth: Annotated[int, typer.Option(min=1, help="Drafted tokens of the chain compared.")] = 4,
    fell: Annotated[
        str,
        typer.Option("--threshold", metavar="PART", help="Tokens per round may fall by so much."),
    ] = "2%",
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    benchmark_json: BenchmarkOption = None,
    bencher_json: BencherOption = None,
    github: GithubOption = False,
    json: JsonOption = False,
) -> None:
    """Compare two acceptance profiles, or a stored one with what is measured now."""
    from specplan.checks.acceptance import check_acceptance, measured_now
    from specplan.cost_models.acceptance.profile import AcceptanceProfile
    from specplan.progress import terminal_progress

    if (head is None) == (problem is None):
        raise UsageError(
            "one newer profile is needed",
            where="specplan check acceptance",
            remedy="Give HEAD.json, or --problem PROBLEM.yaml to measure it now.",
        )
    older = AcceptanceProfile.load(base)
    if problem is not None:
        with terminal_progress() as progress:
            newer = measured_now(problem, older, limit, progress)
    else:
        assert head is not None
        newer = AcceptanceProfile.load(head)
    found = check_acceptance(older, newer, fell=fraction(fell), depth=depth)
    to = Destinations(markdown, junit, benchmark_json, bencher_json, github, json)
    deliver(found, to, "Plan again with the new profile: the best plan may be another one.")
