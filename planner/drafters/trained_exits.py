"""Trained exits of a target: one linear classifier per exit layer, in a folder.

`specplan train --exits` writes `config.json` (`{"model_type": "specplan_exits", "kind":
"classifier" or "policy", "layers": [...], "hidden_size": H}`) and `model.safetensors` with
`weights`, `[exits, H]`, and `biases`, `[exits]`, in the order of `layers`. An exit's number is
1 / (1 + exp(-weights · x - bias)) of the state x after its layer, scaled to a root mean square of 1
(the measure `logistic`): a classifier's, how probable it is that the exit's token is that of all
layers (CALM, Schuster et al. 2022, arXiv 2207.07061); a policy's, how probable it is that it leaves
there (ConsistentEE, Zeng et al. 2023, arXiv 2312.11882).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json
from specplan.ir.values import print_atom

MODEL_TYPE = "specplan_exits"
KINDS = ("classifier", "policy")


@dataclass(frozen=True)
class TrainedExits:
    """Linear classifiers.

    Attributes:
        exits: weights and bias by the layer after which a token may leave, in rising order.
    """

    exits: Mapping[int, tuple[tuple[float, ...], float]]

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers after which a token may leave."""
        return tuple(self.exits)

    def measure(self, layer: int) -> str:
        """The measure of an exit, in plan text."""
        weights, bias = self.exits[layer]
        return f"logistic(weights={print_atom(weights)}, bias={print_atom(bias)})"


def read_trained_exits(folder: Path, kind: str, target: ModelShape) -> TrainedExits:
    """The exits of a folder; numbers have six digits.

    Raises:
        UsageError: it holds something else, or exits of another kind or target.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    config = read_json(folder / "config.json", "config of trained exits")
    if config.get("model_type") != MODEL_TYPE or config.get("kind") != kind:
        raise _wrong(f"{folder.name} holds no trained exits of the kind {kind}", kind)
    try:
        tensors = load_file(folder / "model.safetensors")
        layers = tuple(map(int, config["layers"]))
        weights, biases = tensors["weights"].astype(float), tensors["biases"].astype(float)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _wrong(f"{folder.name} cannot be read: {error}", kind) from error
    wanted = (len(layers), target.hidden_size)
    within = layers and all(0 < layer < target.num_layers for layer in layers)
    if weights.shape != wanted or biases.shape != wanted[:1] or not within:
        has = f"states of {target.hidden_size} numbers and {target.num_layers} layers"
        raise _wrong(
            f"{folder.name} has weights of shape {weights.shape} for layers {layers}; the target "
            f"has {has}",
            kind,
        )
    rows = zip(layers, weights.tolist(), biases.tolist(), strict=True)
    exits = {layer: (tuple(map(_short, row)), _short(bias)) for layer, row, bias in rows}
    return TrainedExits(dict(sorted(exits.items())))


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def _wrong(what: str, kind: str) -> UsageError:
    return UsageError(
        what,
        where=f"exit_{kind}",
        remedy=f"Train exits for this target: `specplan train --exits {kind}`.",
    )
