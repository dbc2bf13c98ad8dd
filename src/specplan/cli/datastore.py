"""`specplan datastore`: corpora to draft from."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json
from specplan.cost_models.models.heads.neighbours import MOST, OFFSET, SCALE

datastore = typer.Typer(
    no_args_is_help=True,
    help="Build a datastore: a corpus to draft from, by text or by states.",
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


@datastore.command("states")
def states(
    corpus: Annotated[Path, typer.Argument(help="A UTF-8 text, or token ids as .npy.")],
    target: Annotated[Path, typer.Option(help="Folder of the target's checkpoint.")],
    out: Annotated[Path, typer.Option(help="Folder for the stored states.")],
    dtype: Annotated[str, typer.Option(help="Number type in which the target runs.")] = "auto",
    device: Annotated[str, typer.Option(help="A torch device.")] = "cpu",
    window: Annotated[int, typer.Option(min=2, help="Tokens per forward pass.")] = 512,
    nearest: Annotated[
        int, typer.Option(min=1, help="Number of nearest neighbours that are used.")
    ] = MOST,
    offset: Annotated[
        float,
        typer.Option(
            help="Ratio of the nearest neighbour's distance to the farthest's below which the "
            "store counts for more than half."
        ),
    ] = OFFSET,
    scale: Annotated[
        float, typer.Option(help="How far from that ratio the store's share changes.")
    ] = SCALE,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            help="Of the neighbours' weights by squared distance (default: the square root of "
            "the hidden size).",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run the target over a corpus and store its hidden states, each with the token behind it."""
    from specplan.datastores import build_states
    from specplan.progress import terminal_progress

    start = perf_counter()
    how = {"nearest": nearest, "offset": offset, "scale": scale, "temperature": temperature}
    with terminal_progress() as progress:
        counts = build_states(
            corpus, out, target, dtype=dtype, device=device, window=window, progress=progress, **how
        )
    if json:
        print_json(counts | {"seconds": perf_counter() - start})
        return
    print(
        f"{counts['states']:,} states of {counts['documents']:,} documents, "
        f"{counts['bytes'] / 1e6:.1f} MB, {perf_counter() - start:.1f} s: {out}"
    )
