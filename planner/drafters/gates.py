"""Gates of heads: which heads of a target look up distant text, by a number for each.

The file is the one that DuoAttention (arXiv 2410.10819) publishes for its models,
`full_attention_heads.tsv`: a line per layer, in it a number per key/value head, tabs between. What
it learned there is the share of a head's output that comes from attention to the whole text;
`specplan profile gates` writes the attention that a head pays to what streaming heads do not see.
"""

from __future__ import annotations

from pathlib import Path

from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import HEAD
from specplan.ir.errors import UsageError
from specplan.ir.files import read_text, write_atomic

Gates = tuple[tuple[float, ...], ...]
"""Per layer, a number per key/value head: the higher, the more it reads of distant text."""


def read_gates(path: Path, target: ModelShape) -> Gates:
    """The gates of a file.

    Raises:
        UsageError: it holds no numbers, or not one per key/value head of the target.
    """
    try:
        lines = read_text(path, "table of gates").splitlines()
        gates = tuple(tuple(map(float, line.split("\t"))) for line in lines if line.strip())
    except ValueError as error:
        raise UsageError(
            f"{path.name} is not a table of gates: {error}",
            where="gates",
            remedy="Write a line per layer with a number per key/value head, separated by tabs.",
        ) from error
    if tuple(map(len, gates)) != target.kv_heads or not all(target.kv_heads):
        heads = sorted(set(target.kv_heads))
        has = f"{target.num_layers} layers of {' or '.join(map(str, heads))} key/value heads"
        raise UsageError(
            f"{path.name} has gates of {len(gates)} layers of "
            f"{max(map(len, gates), default=0)} heads, and the target has {has}",
            where="gates",
            remedy="Give the gates of this target.",
        )
    return gates


def write_gates(path: Path, gates: Gates) -> None:
    """Write gates as `read_gates` reads them."""
    lines = ("\t".join(f"{gate:.6g}" for gate in layer) for layer in gates)
    write_atomic(path, "\n".join(lines) + "\n")


def retrieval_heads(gates: Gates, share: float) -> tuple[str, ...]:
    """The heads with the highest gates, of equals the earlier, in the order of the stack.

    DuoAttention takes the same ones by a quantile of the gates.

    Args:
        gates: of all heads.
        share: of all heads, rounded to whole ones.
    """
    every = [
        (-gate, layer, head) for layer, row in enumerate(gates) for head, gate in enumerate(row)
    ]
    taken = sorted(every)[: round(share * len(every))]
    return tuple(f"{HEAD}.{layer}.{head}" for layer, head in sorted(one[1:] for one in taken))
