"""Exit layers by token: how often a token's next one is settled after some layers.

The file has a line per token id, in it either one number, the layer after which the token leaves
(hash early exit, Sun et al. 2022, arXiv 2203.01670), or one per layer of the target, tabs between:
the share of places behind this token where the most probable next token after the layer is that of
all layers, and stays it from there on. `specplan profile token-exits` writes the second form.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError
from specplan.ir.files import read_text, write_atomic

Shares = NDArray[np.float64]
"""Per token id and layer, `[V, layers]`: the number after so many layers at `layers - 1`."""


def read_token_exits(path: Path, target: ModelShape) -> Shares:
    """The shares of a file; layers alone are shares of 0 before them and 1 from them on.

    Raises:
        UsageError: it holds other things, or not a line per token or not a number per layer.
    """
    layers = target.num_layers
    text = read_text(path, "table of exits by token")
    try:
        rows = [[*map(float, line.split("\t"))] for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise _wrong(f"{path.name} is no table of exits: {error}") from error
    if len({*map(len, rows)}) > 1:
        raise _wrong(f"{path.name} is no table of exits: its lines differ in length")
    table = np.array(rows, dtype=np.float64)
    if table.ndim != 2 or len(table) > target.vocab_size or table.shape[1] not in (1, layers):
        lines = f"{len(rows)} lines of {len(rows[0]) if rows else 0} numbers"
        has = f"{target.vocab_size} tokens and {layers} layers"
        raise _wrong(f"{path.name} has {lines}, and the target {has}")
    if table.shape[1] == 1:
        return (np.arange(1, layers + 1) >= table).astype(np.float64)
    return table


def write_token_exits(path: Path, shares: Shares) -> None:
    """Write shares as `read_token_exits` reads them."""
    lines = ("\t".join(f"{share:.4g}" for share in row) for row in shares)
    write_atomic(path, "\n".join(lines) + "\n")


def settled_tokens(shares: Shares, layer: int, least: float, most: int) -> dict[int, float]:
    """Tokens that leave after a layer with their shares, rising; the best ones where too many do.

    Args:
        shares: of all tokens.
        layer: after which they leave.
        least: share from which a token is listed.
        most: tokens that are listed.
    """
    known = np.flatnonzero(shares[:, layer - 1] >= least)
    best = known[np.argsort(-shares[known, layer - 1], kind="stable")][:most]
    return {int(token): round(float(shares[token, layer - 1]), 4) for token in sorted(best)}


def _wrong(what: str) -> UsageError:
    return UsageError(
        what,
        where="token_exits",
        remedy="Write a line per token id: a layer, or a share per layer, separated by tabs.",
    )
