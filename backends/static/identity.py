"""What a compiled round was made for: written next to it, and checked before it is loaded.

    made_for.json   digests of the tensors that it takes, of the round, and of the weights

A compiled round takes a list of tensors and knows no names. Where another version of specplan lists
them in another order, and the shapes fit, it would give wrong tokens without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from specplan.backends.kernels.fused_parts import Fused
from specplan.backends.static.graph import RoundGraph
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import name_of, read_json, write_json_atomic
from specplan.ir.text.printer import print_plan
from specplan.runtime.models.modules import Module

MADE_FOR = "made_for.json"
MEANING = 6
"""Version of the tensors and of the report: raised where names do not show that it has changed."""
_PARTS = {
    "tensors": "other tensors",
    "round": "another round",
    "weights": "other weights",
    "compiler": "another compiler or device",
}


def identity(graph: RoundGraph, weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Digests of all that a compiled round depends on, by what they are of.

    Args:
        graph: the round.
        weights: of its models, by name.
    """
    interface = graph.interface
    stored = sorted((name, str(one.dtype), tuple(one.shape)) for name, one in weights.items())
    item = (print_plan(graph.plan), graph.item.name, graph.sampling.word, _words(graph.fused))
    return {
        "tensors": name_of(repr((MEANING, interface.names(), interface.written()))),
        "round": name_of(repr(item)),
        "weights": name_of(repr(stored)),
    }


def _words(fused: Fused) -> list[list[str]]:
    parts = (fused.attention, fused.moves, fused.rules, fused.layers, fused.joined)
    return [sorted(names) for names in parts]


def write_identity(folder: Path, made: Mapping[str, str]) -> None:
    """Write what the compiled round in this folder was made for."""
    write_json_atomic(folder / MADE_FOR, dict(made))


def is_made_for(folder: Path, wanted: Mapping[str, str]) -> bool:
    """Whether a folder holds a compiled round that was made for just this."""
    try:
        return bool(read_json(folder / MADE_FOR) == wanted)
    except UsageError:
        return False


def check_identity(folder: Path, wanted: Mapping[str, str]) -> None:
    """Refuse a compiled round that another version made, or that is of something else.

    Raises:
        MissingCapabilityError: says in what it differs.
    """
    if is_made_for(folder, wanted):
        return
    made: object = None
    if (folder / MADE_FOR).is_file():
        made = read_json(folder / MADE_FOR, "list of what the round was made for")
    parts = made if isinstance(made, dict) else {}
    differing = [words for part, words in _PARTS.items() if parts.get(part) != wanted.get(part)]
    raise MissingCapabilityError(
        f"the compiled round is for {', '.join(differing) or 'more'} than this version's",
        where=str(folder),
        remedy="Compile it again: `specplan compile DIR`.",
    )


def named_weights(models: Mapping[str, Module]) -> dict[str, Tensor]:
    """The weights of all models under names that depend on their architecture alone."""
    return {
        f"{name}.{inner}": weight
        for name, model in models.items()
        for inner, weight in model.weights().items()
    }


def weight_names(models: Mapping[str, Module]) -> dict[int, str]:
    """The name of each weight by its address, which identifies constants of a trace.

    Where a weight has two names (tied embeddings) the last one counts.
    """
    weights = named_weights(models).items()
    return {weight.data_ptr(): name for name, weight in weights if weight.numel()}
