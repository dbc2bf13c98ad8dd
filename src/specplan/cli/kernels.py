"""`specplan kernels`: GPU kernels of our own, built ahead of time on any machine."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json

kernels = typer.Typer(no_args_is_help=True, help="Build GPU kernels ahead of time.")


@kernels.callback()
def _commands() -> None:
    """Keeps `build` a command of its own."""


@kernels.command("build")
def build(
    out: Annotated[Path, typer.Option(help="Folder for the kernels.")],
    arch: Annotated[
        list[str] | None,
        typer.Option(help="Architecture, such as sm_90; may be repeated; default: all."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="Number type of the KV cache: bf16, fp16 or fp32; default: bf16."),
    ] = None,
    head_dim: Annotated[
        list[int] | None, typer.Option(help="Head size: 64 or 128; default: both.")
    ] = None,
    page: Annotated[
        int, typer.Option(min=0, help="Slots per page of the KV cache; 0 is no pages.")
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Build the kernels for tree attention, acceptance and KV cache moves; needs no GPU."""
    from specplan.backends.kernels.build import build_kernels
    from specplan.backends.kernels.tiles import HEAD_DIMS
    from specplan.backends.kernels.variants import ARCHITECTURES, variants
    from specplan.progress import terminal_progress

    wanted = variants(dtype or ["bf16"], head_dim or HEAD_DIMS, page)
    start = perf_counter()
    with terminal_progress() as progress:
        index = build_kernels(out, wanted, arch or ARCHITECTURES, progress)
    seconds = perf_counter() - start
    if json:
        print_json({"folder": str(out), "kernels": len(index.kernels), "seconds": seconds})
        return
    print(f"{len(index.kernels)} kernels by triton {index.triton}, {seconds:.1f} s: {out}")
