"""`specplan profile`: measure this machine, and the acceptance of drafters."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.acceptance_table import hazard_cells, print_hazards
from specplan.cli.options import JsonOption, LimitOption, ProblemArgument
from specplan.cli.output import print_json, print_table

if TYPE_CHECKING:
    from specplan.cost_models.acceptance.profile import AcceptanceProfile
    from specplan.cost_models.devices.measured.compiled_form import CompiledForm
    from specplan.cost_models.devices.measured.rows import Row
    from specplan.cost_models.devices.measured.table import MeasuredTable

profile = typer.Typer(
    no_args_is_help=True, help="Measure this machine, or the acceptance of drafters."
)


@profile.command("device")
def device(
    problem: ProblemArgument,
    passes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Minimum number of passes over the grid; more passes narrow the intervals."
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Also measure at this batch size; may be repeated."),
    ] = None,
    context: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Also measure at this context, in tokens; may be repeated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the time of forward passes and ops on this machine; continues a stopped run."""
    from specplan import api
    from specplan.planner.problem.loading import load_problem
    from specplan.progress import terminal_progress

    checked = load_problem(problem)
    with terminal_progress() as progress:
        measured = api.profile_device(
            checked, passes=passes, batches=batch or (), contexts=context or (), progress=progress
        )
    record = _device_record(measured.table, checked.profiles / "device")
    if json:
        print_json(record)
    else:
        _print_device(record)


def _device_record(table: MeasuredTable, folder: Path) -> dict[str, Any]:
    """A measured device as JSON data; times in seconds."""
    from specplan.cost_models.devices.measured.compiled_form import fit_compiled

    return {
        "hardware": table.provenance.hardware,
        "folder": str(folder),
        "drift": table.drift,
        "scatter": table.scatter,
        "fits": [asdict(fit) for fit in table.fits.values()],
        "compiled": {name: _form(fit_compiled(runs)) for name, runs in table.compiled.items()},
        "measurements": [_row(row, table.drift, table.scatter) for row in table.rows.values()],
    }


def _print_device(record: dict[str, Any]) -> None:
    """The rows of a measured device as a table, then its fits."""
    print(record["hardware"])
    print_table(
        ("what", "of", ">time [ms]", ">90 % interval [ms]", ">runs", ">passes"),
        [
            (
                row["kind"],
                " ".join(part[:12] for part in row["row"]),
                f"{row['seconds'] * 1e3:.3f}",
                f"{row['low'] * 1e3:.3f} - {row['high'] * 1e3:.3f}",
                str(row["runs"]),
                str(row["passes"]),
            )
            for row in record["measurements"]
        ],
    )
    for fit in record["fits"]:
        print(_fit_words(fit))
    for name, form in record["compiled"].items():
        print(_form_words(name, form))
    print(
        f"The speed of the whole machine drifts by +-{record['drift']:.1%} (90 %, from the "
        "differences that all rows of a pass share); the intervals above include this."
    )
    print(f"Stored in {record['folder']}")


def _row(row: Row, drift: float, scatter: float) -> dict[str, Any]:
    """A measured row with its 90 % interval."""
    time = row.time(drift, scatter)
    return {
        "kind": row.key[0],
        "row": [str(part) for part in row.key[1:] if part is not None],
        "seconds": time.median,
        "low": time.low,
        "high": time.high,
        "quartiles": [row.low, row.high],
        "runs": row.runs,
        "passes": len(row.passes),
    }


def _fit_words(fit: dict[str, Any]) -> str:
    return (
        f"Fit of {fit['model'][:12]} {fit['dtype']}: {fit['bytes_per_second'] / 1e9:.3g} GB/s, "
        f"{fit['flops_per_second'] / 1e12:.3g} TFLOP/s, {fit['seconds_per_launch'] * 1e6:.2g} us "
        f"per kernel, sharpness {fit['sharpness']:.2f}; off by {fit['mean_error']:.1%} on average, "
        f"by at most {fit['error']:.1%} on 90 % of {fit['rows']} rows"
    )


def _form(form: CompiledForm) -> dict[str, Any]:
    models = [{"model": m, "dtype": d, "share": f} for (m, d), f in form.models.items()]
    names = "several", "token", "others", "moves", "error"
    return {"models": models} | {name: getattr(form, name) for name in names}


def _form_words(backend: str, form: dict[str, Any]) -> str:
    shares = ", ".join(
        f"{one['share']:.2f} by {one['model'][:12]} {one['dtype']}" for one in form["models"]
    )
    return (
        f"Steps compiled by {backend} take, of the interpreter's time for one token: {shares}; "
        f"{form['several']:.2f} of that more for several tokens, {form['token']:.3f} for each "
        f"behind the first; {form['moves']:.2f} of moves, {form['others']:.2f} of all else; "
        f"within +-{form['error']:.1%} (90 %)"
    )


@profile.command("acceptance")
def acceptance(
    problem: ProblemArgument,
    limit: LimitOption = None,
    precision: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Stop when the 90 % intervals of tokens per step are within this fraction of "
            "their means (default 0.03); 0 uses all prompts.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure acceptance by depth and rank on the prompts; continues a stopped run."""
    from specplan import api
    from specplan.planner.problem.loading import load_problem
    from specplan.progress import terminal_progress

    checked = load_problem(problem)
    with terminal_progress() as progress:
        measured = api.profile_acceptance(
            checked, limit=limit, precision=precision, progress=progress
        )
    folder = checked.profiles / "acceptance"
    profiles = {str(drafter): _record(profile) for drafter, profile in measured.items()}
    if json:
        print_json({"folder": str(folder), "profiles": profiles})
        return
    for drafter, record in profiles.items():
        title = (
            f"{drafter}: accepted, given that the parent was and no elder sibling "
            f"({record['positions']} positions)"
        )
        print_hazards(title, record["hazards"])
        print(_precision_words(record))
    print(f"Stored in {folder}")


@profile.command("gates")
def gates(
    problem: ProblemArgument,
    out: Annotated[Path, typer.Option(help="File to write.")],
    budget: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of tokens that an attention head would read instead of the whole text.",
        ),
    ] = 256,
    json: JsonOption = False,
) -> None:
    """Measure which heads of the target attend to distant text, for `gates` of a problem."""
    from specplan.planner.problem.loading import load_problem
    from specplan.progress import terminal_progress
    from specplan.quality.tables import profile_gates

    with terminal_progress() as progress:
        written = profile_gates(load_problem(problem), out, budget=budget, progress=progress)
    if json:
        print_json({"gates": str(written), "budget": budget})
    else:
        print(f"Stored in {written}; name it as `gates` in the problem")


@profile.command("token-exits")
def token_exits(
    problem: ProblemArgument,
    out: Annotated[Path, typer.Option(help="File to write.")],
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """Measure after how many layers the next token is settled, for `token_exits` of a problem."""
    from specplan.planner.problem.loading import load_problem
    from specplan.progress import terminal_progress
    from specplan.quality.tables import profile_token_exits

    with terminal_progress() as progress:
        checked = load_problem(problem)
        written = profile_token_exits(checked, out, limit=limit, progress=progress)
    if json:
        print_json({"token_exits": str(written)})
    else:
        print(f"Stored in {written}; name it as `token_exits` in the problem")


def _record(profile: AcceptanceProfile) -> dict[str, Any]:
    """A profile's hazards and its precision."""
    return {
        "positions": profile.positions,
        "prompts": len(profile.evidence.traces),
        "prompts_left": profile.provenance.get("prompts_left", 0),
        "half_width": profile.provenance.get("half_width"),
        "hazards": hazard_cells(profile),
    }


def _precision_words(record: dict[str, Any]) -> str:
    left = record["prompts_left"]
    rest = f"precise enough, {left} more were not needed" if left else "all that were asked for"
    return (
        f"Tokens per step are known to +-{record['half_width']:.1%} (90 %, the least certain "
        f"candidate) from {record['prompts']} prompts: {rest}"
    )
