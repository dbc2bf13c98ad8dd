"""The numbers of a model that its costs depend on, read without loading weights."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.cost_models.architectures import fields_of_config
from specplan.cost_models.parameters import parameter_inventory
from specplan.cost_models.safetensors_headers import (
    DTYPE_NAMES,
    Tensor,
    config_identity,
    parameter_tensors,
    read_config,
)
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import model_digest

DTYPE_BYTES = {"float64": 8.0, "float32": 4.0, "float16": 2.0, "bfloat16": 2.0}


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder-only transformer. Sizes are element counts, bytes are per element.

    Attributes:
        name: how messages call the model.
        architecture: the `model_type` of its config.json.
        dtype: number format of weights, activations and cache when it runs.
        hidden_size: width of the residual stream.
        num_layers: transformer layers.
        num_heads: query heads.
        num_kv_heads: key and value heads (fewer than `num_heads` with grouped queries).
        head_dim: width of one head.
        intermediate_size: width of the MLP.
        vocab_size: rows of the LM head.
        max_positions: longest text.
        gated_mlp: three MLP matrices (gate, up, down) rather than two.
        tied_embeddings: the LM head is the embedding table.
        layer_windows: per layer, the sliding window in tokens, or None for full attention.
        query_key_value_bias: biases on the three input projections of attention.
        output_bias: a bias on the output projection of attention.
        mlp_bias: biases in the MLP.
        query_key_norm: a norm over each head's queries and keys (Qwen3).
        parameters_per_norm: parameters of one layer norm or RMS norm.
        final_norm: a norm before the LM head.
        learned_positions: rows of a learned position table, 0 with rotary positions.
        embedding_size: width of the embedding table (differs in OPT-350M).
        weight_bytes_per_parameter: bytes per weight as it runs.
        kv_bytes_per_element: bytes per cached element.
        parameters: exact parameter count, from the safetensors headers where they exist.
        digest: identity of the checkpoint (`specplan.ir.files.model_digest`), or of the config
            alone where there are no weights.
    """

    name: str
    architecture: str
    dtype: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    gated_mlp: bool
    tied_embeddings: bool
    layer_windows: tuple[int | None, ...]
    query_key_value_bias: bool
    output_bias: bool
    mlp_bias: bool
    query_key_norm: bool
    parameters_per_norm: int
    final_norm: bool
    learned_positions: int
    embedding_size: int
    weight_bytes_per_parameter: float
    kv_bytes_per_element: float
    parameters: int
    digest: str

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, name: str = "model", dtype: str | None = None
    ) -> ModelShape:
        """Shape from a parsed config.json alone; the parameter count is computed.

        Args:
            config: the parsed config.json.
            name: how messages call the model.
            dtype: number format to run in; None or "auto" takes the config's own.

        Raises:
            MissingCapabilityError: the architecture is not priced yet.
            UsageError: a key is missing or wrong, or the dtype is unknown.
        """
        if dtype in (None, "auto"):
            dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        fields = fields_of_config(config, name)
        digest = hashlib.sha256(config_identity(config)).hexdigest()
        return cls._make(fields, name, dtype, digest, parameters=None)

    @classmethod
    def from_folder(
        cls, path: Path | str, dtype: str | None = None, name: str | None = None
    ) -> ModelShape:
        """Shape from a checkpoint folder: config.json and the headers of its safetensors.

        Args:
            path: the folder; the weights may be absent, their bytes are never read whole.
            dtype: number format to run in; None or "auto" takes the stored one.
            name: how messages call the model; default the folder's name.

        Raises:
            MissingCapabilityError: the architecture is not priced yet.
            UsageError: the folder is not a checkpoint, or config and weights disagree.
        """
        folder = Path(path)
        name = name or folder.resolve().name
        config = read_config(folder)
        fields = fields_of_config(config, str(folder))
        tensors = parameter_tensors(folder, fields["tied_embeddings"])
        if not tensors:
            shape = cls.from_config(config, name=name, dtype=dtype)
            return shape
        if dtype in (None, "auto"):
            dtype = _stored_dtype(tensors, folder)
        parameters = sum(tensor.elements for tensor in tensors.values())
        shape = cls._make(fields, name, dtype, model_digest(folder), parameters)
        if shape.parameters != sum(parameter_inventory(shape).values()):
            raise UsageError(
                f"the weights hold {shape.parameters} parameters, "
                f"config.json describes {sum(parameter_inventory(shape).values())}",
                where=str(folder),
                remedy="Take config.json and weights from the same checkpoint.",
            )
        return shape

    @classmethod
    def _make(
        cls,
        fields: dict[str, Any],
        name: str,
        dtype: str | None,
        digest: str,
        parameters: int | None,
    ) -> ModelShape:
        width = DTYPE_BYTES.get(str(dtype))
        if width is None:
            raise UsageError(
                f"dtype {dtype!r} is unknown",
                where=name,
                remedy=f"Use one of {', '.join(sorted(DTYPE_BYTES))}.",
            )
        shape = cls(
            name=name,
            dtype=str(dtype),
            weight_bytes_per_parameter=width,
            kv_bytes_per_element=width,
            parameters=parameters or 0,
            digest=digest,
            **fields,
        )
        if parameters is None:
            object.__setattr__(shape, "parameters", sum(parameter_inventory(shape).values()))
        return shape

    @property
    def weight_bytes(self) -> float:
        """Bytes of all parameters as they run."""
        return self.parameters * self.weight_bytes_per_parameter

    @property
    def matmul_parameters(self) -> int:
        """Parameters of the matrices a forward multiplies by: layers and LM head.

        The input embedding, norms and biases are not among them.
        """
        inventory = parameter_inventory(self)
        head = self.vocab_size * self.embedding_size
        return inventory["attention"] + inventory["mlp"] + inventory["projections"] + head

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that one token takes in the caches of all layers."""
        per_layer = 2 * self.num_kv_heads * self.head_dim * self.kv_bytes_per_element
        return self.num_layers * per_layer


def _stored_dtype(tensors: Mapping[str, Tensor], folder: Path) -> str:
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        counts[tensor.dtype] += tensor.elements
    stored = counts.most_common(1)[0][0]
    if stored not in DTYPE_NAMES:
        raise MissingCapabilityError(
            f"weights stored as {stored} cannot be priced yet",
            where=str(folder),
            remedy=f"Use weights stored as {', '.join(DTYPE_NAMES)}.",
        )
    return DTYPE_NAMES[stored]
