"""`specplan datastore`: corpora to draft from."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json

datastore = typer.Typer(
    no_args_is_help=True, help="Build a datastore: a corpus from which lookups draft."
)


@datastore.command("build")
def build(
    corpus: Annotated[Path, typer.Argument(help="A UTF-8 text, or token ids as .npy.")],
    tokenizer: Annotated[Path, typer.Option(help="Folder of the target's checkpoint.")],
    out: Annotated[Path, typer.Option(help="Folder for the datastore.")],
    keep: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum number of kept occurrences of a long run of tokens (default: all)."
        ),
    ] = None,
    common: Annotated[
        int, typer.Option(min=1, help="Drop short runs that occur fewer times than this.")
    ] = 1,
    trees: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Also store ready trees of the N commonest runs of tokens."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Index a corpus for lookups; continues a stopped build."""
    from specplan.datastores import build_datastore
    from specplan.progress import terminal_progress

    start = perf_counter()
    with terminal_progress() as progress:
        counts = build_datastore(
            corpus, out, tokenizer, keep=keep, common=common, trees=trees, progress=progress
        )
    size = sum(path.stat().st_size for path in out.iterdir())
    if json:
        print_json(counts | {"bytes": size, "seconds": perf_counter() - start})
        return
    print(
        f"{counts['tokens']:,} tokens, {counts['places']:,} places in {counts['shards']} shards, "
        f"{size / 1e6:.1f} MB, {perf_counter() - start:.1f} s: {out}"
    )
