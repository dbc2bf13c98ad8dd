"""`specplan compile` and `specplan lower`: rounds of a bundle for the shapes of its workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specplan.cli.options import BundleArgument, JsonOption
from specplan.cli.output import print_json, print_table
from specplan.cli.planned import PlannedArgument, ProblemOption


def compile_(
    bundle: PlannedArgument,
    problem: ProblemOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="With a plan text: folder of its bundle."),
    ] = None,
    turns: Annotated[
        int, typer.Option("--turns", min=1, help="Interleaved runs per shape and backend.")
    ] = 7,
    cubins: Annotated[
        str | None,
        typer.Option(
            "--cubins",
            metavar="ARCHS",
            help="Build only the GPU kernels of the steps: sm_90,sm_100 or all; needs no GPU.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compile the steps of a bundle for this machine, where this makes them faster.

    A plan text is bundled first, for the problem that --problem names.
    """
    bundle = _bundled(bundle, problem, out)
    if cubins is not None:
        _kernels(bundle, cubins, json)
        return
    from specplan.bundles.compiling import compile_bundle
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        compiled = compile_bundle(bundle, turns=turns, progress=progress)
    executables = compiled.executables
    assert executables is not None, "compiling writes them"
    if json:
        print_json(executables.as_dict())
        return
    rows = [
        [str(shape.batch), str(shape.text), name, f"{seconds * 1e3:.2f}", chosen]
        for shape in executables.shapes
        for name, seconds in sorted(shape.seconds.items(), key=lambda item: item[1])
        for chosen in ["chosen" if name == shape.backend else ""]
    ]
    print_table([">batch", ">text", "backend", ">ms per step", ""], rows, title="Steps")
    for note in executables.notes:
        print(f"Not compiled: {note}")


def _bundled(source: Path, problem: Path | None, out: Path | None) -> Path:
    """The folder of a bundle: as it was given, or that of a plan text, written here.

    Raises:
        UsageError: the plan text, its problem or its folder is missing, or given to a bundle.
    """
    from specplan.cli.options import ProblemSource
    from specplan.cli.planned import edited
    from specplan.ir.errors import UsageError

    written = edited(ProblemSource(source), problem)
    if (written is None) != (out is None):
        raise UsageError(
            "a plan text needs --out, the folder of its bundle; a bundle does not",
            where="--out",
            remedy="For a plan text give --problem FILE --out DIR; for a bundle leave --out away.",
        )
    if written is None or out is None:
        return source
    from specplan.edited import write_edited
    from specplan.progress import terminal_progress
    from specplan.quality.calibrating import certificate_beside

    certified = certificate_beside(source)
    with terminal_progress() as progress:
        return write_edited(*written, out, progress, certified).folder


def _kernels(bundle: Path, architectures: str, json: bool) -> None:
    from specplan.backends.kernels.kernel_folder import read_index
    from specplan.backends.manifest import KERNELS
    from specplan.bundles.compiling import build_cubins
    from specplan.progress import terminal_progress

    wanted = [] if architectures == "all" else [name.strip() for name in architectures.split(",")]
    with terminal_progress() as progress:
        built, plain = build_cubins(bundle, wanted, progress=progress)
    names = sorted({kernel.name for kernel in read_index(built.folder / KERNELS).kernels})
    if json:
        print_json({"architectures": built.kernels, "kernels": names, "without_kernel": plain})
        return
    print(f"Kernels for {', '.join(built.kernels)}:")
    for name in names:
        print(f"  {name}")
    for note in plain:
        print(f"Without a kernel: {note}")


def lower(
    bundle: BundleArgument,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the files.")],
    to: Annotated[
        str, typer.Option("--to", metavar="NAME", help="Engine builder: tensorrt.")
    ] = "tensorrt",
    json: JsonOption = False,
) -> None:
    """Write the steps of a bundle as checked sources for an engine builder (TensorRT)."""
    from dataclasses import asdict

    from specplan.bundles.compiling import lower_for_tensorrt
    from specplan.ir.errors import UsageError

    if to != "tensorrt":
        raise UsageError(f"unknown engine builder {to!r}", where="--to", remedy="Use tensorrt.")
    rounds, built = lower_for_tensorrt(bundle, out)
    if json:
        print_json({"rounds": [asdict(item) for item in rounds], "built": built})
        return
    rows = [[item.name, str(item.batch), str(item.text)] for item in rounds]
    print_table(["step", ">batch", ">text"], rows, title="Steps that TensorRT can build")
    print(
        "Engines are in the same folder." if built else f"TensorRT is not here: run {out}/build.sh"
    )
