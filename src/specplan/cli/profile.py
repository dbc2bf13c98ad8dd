"""`specplan profile`: measure this machine, and what the target accepts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specplan.cli.acceptance_table import hazard_cells, print_hazards
from specplan.cli.options import JsonOption, ProblemArgument
from specplan.cli.output import print_json, print_table

profile = typer.Typer(
    no_args_is_help=True, help="Measure this machine, or what the target accepts."
)


@profile.command("device")
def device(problem: ProblemArgument, json: JsonOption = False) -> None:
    """Measure the seconds of forwards and ops on this machine; goes on where it was stopped."""
    from specplan import api
    from specplan.planner.loading import load_problem
    from specplan.progress import terminal_progress

    checked = load_problem(problem)
    with terminal_progress() as progress:
        table = api.profile_device(checked, progress=progress).table
    folder = checked.profiles / "device"
    rows = [
        {"kind": row.key[0], "row": [str(part) for part in row.key[1:] if part is not None]}
        | {"seconds": row.seconds, "low": row.low, "high": row.high, "runs": row.runs}
        for row in table.rows.values()
    ]
    if json:
        print_json(
            {"hardware": table.provenance.hardware, "folder": str(folder), "measurements": rows}
        )
        return
    print(table.provenance.hardware)
    print_table(
        ("what", "of", ">median [ms]", ">quartiles [ms]", ">runs"),
        [
            (
                row["kind"],
                " ".join(part[:12] for part in row["row"]),
                f"{row['seconds'] * 1e3:.3f}",
                f"{row['low'] * 1e3:.3f} - {row['high'] * 1e3:.3f}",
                str(row["runs"]),
            )
            for row in rows
        ],
    )
    print(f"Stored in {folder}")


@profile.command("acceptance")
def acceptance(
    problem: ProblemArgument,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only so many prompts.")] = None,
    json: JsonOption = False,
) -> None:
    """Measure acceptance by depth and rank on the prompts; goes on where it was stopped."""
    from specplan import api
    from specplan.planner.loading import load_problem
    from specplan.progress import terminal_progress

    checked = load_problem(problem)
    with terminal_progress() as progress:
        found = api.profile_acceptance(checked, limit=limit, progress=progress)
    folder = checked.profiles / "acceptance"
    profiles: dict[str, dict[str, Any]] = {
        proposer: {"positions": profile.positions, "hazards": hazard_cells(profile)}
        for proposer, profile in found.items()
    }
    if json:
        print_json({"folder": str(folder), "profiles": profiles})
        return
    for proposer, record in profiles.items():
        title = (
            f"{proposer}: accepted, given that the parent was and no elder sibling "
            f"({record['positions']} positions)"
        )
        print_hazards(title, record["hazards"])
    print(f"Stored in {folder}")
