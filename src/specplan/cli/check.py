"""`specplan check`: regressions between two versions, with the evidence for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.destinations import Destinations, deliver, fraction, grouped, threshold
from specplan.cli.options import (
    BundleArgument,
    JsonOption,
    LimitOption,
    ProblemArgument,
    PromptsOption,
)
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.checks.running import Load

check = typer.Typer(
    no_args_is_help=True,
    help="Detect regressions: in recorded plans and estimates, measured speed, acceptance.",
)

RecordsArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of recorded problems.", show_default=False)
]
BasePythonOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Python of an environment with the base version of specplan."
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """Options of the commands that run bundles."""

    batch: Annotated[int, typer.Option(min=1, help="Prompts per run.")] = 1
    output_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens per prompt and run (default: the problem's, at most 32)."),
    ] = None
    prompts: PromptsOption = None
    limit: LimitOption = None
    seed: Annotated[int, typer.Option(help="Seed for the run order.")] = 0

    @property
    def load(self) -> Load:
        """The load of every run."""
        from specplan.checks.running import Load

        return Load(self.batch, self.output_tokens, self.prompts, self.limit)


@check.command("plans")
@grouped(to=Destinations)
def plans(
    folder: RecordsArgument,
    base_python: BasePythonOption = None,
    moved: Annotated[
        str, typer.Option(metavar="PART", help="Largest allowed relative change of an estimate.")
    ] = "0.1%",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Report changes, and exit with 0.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Record the current plans and estimates as correct.")
    ] = False,
    *,
    to: Destinations,
) -> None:
    """Plan recorded problems again, and compare with the records or with another version."""
    from specplan.checks.plans import check_plans
    from specplan.checks.plans import update as record_anew
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        if update:
            anew = [str(path) for path in record_anew(folder, progress)]
        else:
            findings = check_plans(
                folder,
                base_python=base_python,
                moved=fraction(moved),
                changes_allowed=allow_changes,
                progress=progress,
            )
    if update:
        print_json({"recorded": anew}) if to.json else print("Recorded anew:", *anew, sep="\n  ")
        return
    deliver(findings, to, f"If the change is intended: specplan check plans {folder} --update")


@check.command("record")
def record(
    problem: ProblemArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the record.")],
    json: JsonOption = False,
) -> None:
    """Record a problem without its weights for `check plans`."""
    from specplan.checks.recording import record as write
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        answer = write(problem, out, progress)
    if json:
        print_json({"record": str(out), "answer": answer})
        return
    print(f"Recorded in {out}: {answer['prices']['chosen']['words']}")


@check.command("speed")
@grouped(runs=RunOptions, to=Destinations)
def speed(
    bundle: BundleArgument,
    base: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Bundle to compare with.")
    ] = None,
    base_python: BasePythonOption = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Baseline of `specplan check baseline` to compare with."),
    ] = None,
    limit_slowdown: Annotated[
        str, typer.Option("--threshold", metavar="median:PART", help="Slow-down to detect.")
    ] = "median:5%",
    error: Annotated[
        str, typer.Option(metavar="PART", help="Maximum rate of false alarms, and of misses.")
    ] = "2.5%",
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Time budget in seconds, excluding model loading.")
    ] = 150.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Treat an undecided test as a regression.")
    ] = False,
    *,
    runs: RunOptions,
    to: Destinations,
) -> None:
    """Run a bundle against a base until a sequential test decides whether it is slower."""
    from specplan.checks.speed import SpeedTest, check_speed
    from specplan.measure.bench.sequential import Rule
    from specplan.progress import terminal_progress

    test = SpeedTest(
        rule=Rule(threshold(limit_slowdown), fraction(error)),
        load=runs.load,
        seconds=seconds,
        seed=runs.seed,
        strict=strict,
    )
    with terminal_progress() as progress:
        findings = check_speed(
            bundle,
            base=base,
            base_python=base_python,
            baseline=baseline,
            test=test,
            progress=progress,
        )
    deliver(findings, to, "Compare `specplan explain` of both; docs/check.md describes the test.")


@check.command("baseline")
@grouped(runs=RunOptions)
def baseline(
    bundle: BundleArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Baseline file to write.")],
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Minimum measuring time in seconds.")
    ] = 60.0,
    json: JsonOption = False,
    *,
    runs: RunOptions,
) -> None:
    """Measure a bundle's plan against plain decoding, for `check speed --baseline`."""
    from dataclasses import asdict

    from specplan.checks.baseline import measure_baseline
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        measured = measure_baseline(
            bundle, load=runs.load, seconds=seconds, seed=runs.seed, progress=progress
        )
    measured.save(out)
    if json:
        print_json(asdict(measured))
        return
    print(
        f"Baseline: {out} ({measured.pairs} pairs over {len(measured.log_ratios)} groups, "
        f"known to +-{measured.half_width:.1%})"
    )


@check.command("acceptance")
@grouped(to=Destinations)
def acceptance(
    base: Annotated[Path, typer.Argument(metavar="BASE.json", help="Older profile.")],
    head: Annotated[
        Path | None, typer.Argument(metavar="[HEAD.json]", help="Newer profile.")
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="PROBLEM.yaml", help="Measure the newer profile on this problem."),
    ] = None,
    limit: LimitOption = None,
    depth: Annotated[int, typer.Option(min=1, help="Draft tokens (K) of the compared chain.")] = 4,
    fell: Annotated[
        str,
        typer.Option(
            "--threshold", metavar="PART", help="Largest allowed drop of tokens per step."
        ),
    ] = "2%",
    *,
    to: Destinations,
) -> None:
    """Compare two acceptance profiles, or a stored one with a new measurement."""
    from specplan.checks.acceptance import check_acceptance, measured_now
    from specplan.cost_models.acceptance.profile import AcceptanceProfile
    from specplan.progress import terminal_progress

    if (head is None) == (problem is None):
        raise UsageError(
            "there must be exactly one newer profile",
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
    findings = check_acceptance(older, newer, fell=fraction(fell), depth=depth)
    deliver(findings, to, "Plan again with the new profile: the best plan may have changed.")
