"""Checked access to the keys of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specplan.ir.errors import UsageError

MOST_LAYERS = 10_000
"""Every layer is an object here, and no model has nearly as many."""
_LISTS = ("architectures", "layer_types", "layers_block_type")
_OBJECTS = (
    "clover", "dflash_config", "eagle_config", "quantization_config", "rope_parameters",
    "rope_scaling", "text_config", "transformer_layer_config",
)  # fmt: skip
_TOKENS = ("mask_token_id", "pard_token", "ptd_token_id")
_LAYERS = ("n_layer", "num_hidden_layers", "num_layers", "num_nextn_predict_layers")
_NUMBERS = ("layer_norm_eps", "partial_rotary_factor", "rms_norm_eps", "rope_theta")


def check_kinds(values: Mapping[str, Any], where: str) -> None:
    """Refuse values of another kind than every reader of that key takes it for; null is absent.

    Raises:
        UsageError: names the first key of which this is so.
    """
    for key, value in values.items():
        wanted = "" if value is None else _wanted(key, value)
        if wanted:
            raise UsageError(
                f"config.json gives {value!r} for {key}, not {wanted}",
                where=where,
                remedy="Take the config.json that came with the checkpoint.",
            )
        if key in _OBJECTS and value is not None:
            check_kinds(value, where)


def _wanted(key: str, value: Any) -> str:
    """What a value should be; empty where it is."""
    if key in _LISTS and not isinstance(value, list | tuple):
        return "a list"
    if key in _OBJECTS and not isinstance(value, Mapping):
        return "an object"
    if key in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "a number"
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key == "head_dim" and not (whole and value >= 1):
        return "a positive integer"
    if key in _TOKENS and not (whole and value >= 0):
        return "the id of a token"
    if key in _LAYERS and whole and value > MOST_LAYERS:
        return f"a number of layers up to {MOST_LAYERS}"
    return ""


@dataclass(frozen=True)
class Config:
    """A parsed config.json, and what to call it in errors."""

    values: Mapping[str, Any]
    where: str

    @property
    def family(self) -> str:
        """The `model_type`."""
        return str(self.values.get("model_type", "unnamed"))

    def get(self, key: str, default: Any = None) -> Any:
        """A value; the default where it is absent or null."""
        value = self.values.get(key)
        return default if value is None else value

    def size(self, *keys: str, default: int | None = None) -> int:
        """A positive integer under the first of some names that is there.

        Raises:
            UsageError: none is there and there is no default, or it is no positive integer.
        """
        key = next((key for key in keys if self.get(key) is not None), None)
        value = default if key is None else self.values[key]
        if value is None:
            raise UsageError(
                f"config.json of a {self.family} model lacks the key {keys[0]!r}",
                where=self.where,
                remedy="Take the config.json that came with the checkpoint.",
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(
                f"config.json gives {value!r} for {key or keys[0]}, not a positive integer",
                where=self.where,
            )
        return value

    def count(self, key: str, default: int = 0) -> int:
        """A size that may be zero.

        Raises:
            UsageError: it is no integer from zero on.
        """
        return self.size(key) if self.get(key, default) else 0

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether something is so."""
        return bool(self.get(key, default))

    def per_layer(self, key: str, layers: int) -> tuple[Any, ...] | None:
        """A list with one entry per layer; None where it is absent.

        Raises:
            UsageError: it is no such list.
        """
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != layers:
            raise UsageError(
                f"config.json: {key} does not have one entry per layer", where=self.where
            )
        return tuple(value)
