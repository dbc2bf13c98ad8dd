"""`specplan import`: what other programs measured, as profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.acceptance_table import hazard_cells, print_hazards
from specplan.cli.options import JsonOption
from specplan.cli.output import print_json

if TYPE_CHECKING:
    from specplan.cost_models.acceptance.profile import AcceptanceProfile

importing = typer.Typer(
    no_args_is_help=True, help="Import measurements of serving engines and benchmarks."
)


@importing.command("acceptance")
def acceptance(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL",
            help="A log or result file, or the address of a running server's /metrics.",
            show_default=False,
        ),
    ],
    drafter: Annotated[
        str, typer.Option(help='The drafter: the draft model\'s name in the problem, or "text".')
    ],
    out: Annotated[Path, typer.Option(metavar="PROFILE.json", help="The profile to write.")],
    format: Annotated[
        str | None,
        typer.Option(help="Format of the file (docs/acceptance.md); recognised if unambiguous."),
    ] = None,
    task: Annotated[str, typer.Option(help="The workload.task of the problem.")] = "",
    temperature: Annotated[float, typer.Option(min=0.0)] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="1 is off.")] = 1.0,
    draft_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Draft tokens (K) per step, if the file does not state them."),
    ] = None,
    rounds: Annotated[
        float | None, typer.Option(min=1.0, help="Number of steps, if the file does not state it.")
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="Part of the file to read: a label, a subset or a mode.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Turn a log of a serving engine or benchmark into an acceptance profile."""
    from specplan.importing import import_acceptance

    profile = import_acceptance(
        file,
        drafter,
        format=format,
        task=task,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        draft_tokens=draft_tokens,
        rounds=rounds,
        select=select,
    )
    profile.save(out)
    record = _record(profile, out)
    if json:
        print_json(record)
        return
    print(f"Understood: {record['understood']}.")
    print_hazards(f"{drafter} {profile.source}", record["hazards"])
    print(f"Stored in {out}")
    print(f"Name it in the problem file:  acceptance: {{{drafter}: {out}}}")


def _record(profile: AcceptanceProfile, path: Path) -> dict[str, Any]:
    """An imported profile as JSON data: how its file was read, and the hazards."""
    from specplan.importing import understood

    return {
        "profile": str(path),
        "understood": understood(profile),
        "evidence": profile.evidence.kind,
        "provenance": dict(profile.provenance),
        "hazards": hazard_cells(profile),
    }


@importing.command("device")
def device(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)],
    problem: Annotated[
        Path,
        typer.Option(
            metavar="PROBLEM.yaml", help="Problem with the device on which the engine ran."
        ),
    ],
    projection: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of `specplan emit` that the engine served (default: plain decoding).",
        ),
    ] = None,
    batch: Annotated[
        float | None,
        typer.Option(min=1.0, help="Requests that ran at once, if the files do not state it."),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(help="Model to read, as label=value, if the server counts several."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Calibrate a device with the measured times of a serving engine.

    FILE is the result of a serving benchmark; or two scrapes of /metrics, before and after a run.
    """
    from dataclasses import asdict

    from specplan.importing import import_device
    from specplan.planner.answer.names import plan_name

    measured = import_device(files, problem, projection=projection, batch=batch, select=select)
    if json:
        print_json(asdict(measured))
        return
    print(
        f"{plan_name({'method': measured.method, 'words': measured.words})} at batch "
        f"{measured.batch}, "
        f"{measured.prompt_tokens} prompt tokens: "
        f"{measured.seconds_per_token * 1e3:.3g} ms per output token "
        f"(+-{measured.error:.1%}, {measured.turns} requests)"
    )
    print(f"The next `specplan optimize {problem}` uses it.")


@importing.command("probe")
def probe(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of `specplan emit --probe`, with its results.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR2", help="Folder for the files.")],
    json: JsonOption = False,
) -> None:
    """Turn what a probe measured into acceptance profiles, device times and a problem with both."""
    from specplan.probing.reading import import_probe

    done = import_probe(folder, out)
    if json:
        print_json(done.as_dict())
        return
    record = done.as_dict()
    print(f"Understood: {record['engine']}.")
    for name, entry in record["acceptance"].items():
        print(f"{name}, on {record['prompts']}: {entry['words']}")
    print("\n  requests  prompt  server              TTFT     step  tokens/step     TPOT")
    for row in record["points"]:
        ttft = "" if row["ttft"] is None else f"{row['ttft'] * 1e3:.0f} ms"
        tokens = "" if row["tokens_per_step"] is None else f"{row['tokens_per_step']:.2f}"
        print(
            f"  {row['batch']:>8}  {row['prompt_tokens']:>6}  {row['arm']:<14}  {ttft:>8}"
            f"  {row['step'] * 1e3:>5.3g} ms  {tokens:>11}  {row['tpot'] * 1e3:>5.3g} ms"
        )
    if record["missing"]:
        print(f"\nNot measured yet: {', '.join(record['missing'])} (probe.sh goes on)")
    print(
        f"\nStored in {out}: {', '.join(['problem.yaml', *(f'{n}.json' for n in done.profiles)])}"
    )
    print(f"Next:  specplan optimize {out}/problem.yaml")
