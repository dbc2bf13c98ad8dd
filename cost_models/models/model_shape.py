"""The numbers of a model that its costs depend on, read without loading weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from specplan.cost_models.models.files.stored_model import (
    Chosen,
    StoredModel,
    read_folder,
    read_gguf_file,
    read_stated,
)
from specplan.cost_models.models.layers import Attention, Decoder
from specplan.cost_models.models.number_formats import (
    DTYPE_BYTES,
    RUN_FORMATS,
    NumberFormat,
    WeightFormats,
)
from specplan.cost_models.models.parameters import parameter_inventory
from specplan.cost_models.placement import Placement
from specplan.ir.errors import UsageError


def is_gguf(path: Path | str) -> bool:
    """Whether a model's path names a GGUF file rather than a folder."""
    return Path(path).suffix == ".gguf"


@dataclass(frozen=True, kw_only=True)
class ModelShape(Decoder):
    """A decoder-only transformer and the numbers it is stored in.

    Attributes:
        name: how messages call the model.
        dtype: number format of activations, and of all that `formats` does not say otherwise.
        formats: number formats of the weights, part by part.
        kv_format: number format of the cache.
        parameters: exact parameter count, from the safetensors headers where they exist; the
            drafter layers are not counted.
        digest: identity of the checkpoint (`specplan.ir.files.model_digest`), or of the config
            alone where there are no weights.
        states_dtype: the dtype is given, by the caller, the config or the weights; otherwise it
            is assumed to be bfloat16.
        placement: of layers outside of the device's memory; None for none.
        shared_by: devices of a group that share each layer, others run copies; None for all.
    """

    name: str
    dtype: str
    formats: WeightFormats
    kv_format: NumberFormat
    parameters: int
    digest: str
    states_dtype: bool = True
    placement: Placement | None = None
    shared_by: int | None = None

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        name: str = "model",
        dtype: str | None = None,
        weight_format: str | None = None,
        head_format: str | None = None,
        kv_format: str | None = None,
    ) -> ModelShape:
        """Shape from a parsed config.json alone; the parameter count is computed.

        Args:
            config: the parsed config.json.
            name: how messages call the model.
            dtype: number format to run in; None or "auto" takes the config's own.
            weight_format: stored format of the layers' matrices, as if the weights were
                quantised so, whatever the config says; a name of `number_formats.FORMATS`.
            head_format: the same of the LM head.
            kv_format: format of the cache; default the config's, or the dtype.

        Raises:
            MissingCapabilityError: the architecture is not priced yet.
            UsageError: a key is missing or wrong, or a number format is unknown.
        """
        return cls.of_stored(
            read_stated(config, name, Chosen(dtype, weight_format, head_format, kv_format))
        )

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        dtype: str | None = None,
        name: str | None = None,
        weight_format: str | None = None,
        head_format: str | None = None,
        kv_format: str | None = None,
    ) -> ModelShape:
        """Shape from a checkpoint folder: config.json and the headers of its safetensors.

        Args:
            path: the folder; the weights may be absent, their bytes are never read whole.
            dtype: number format to run in; None or "auto" takes the stored one.
            name: how messages call the model; default the folder's name.
            weight_format: see `from_config`.
            head_format: see `from_config`.
            kv_format: see `from_config`.

        Raises:
            MissingCapabilityError: the architecture is not priced yet.
            UsageError: the folder is not a checkpoint, or config and weights disagree.
        """
        folder = Path(path)
        name = name or folder.resolve().name
        return cls.of_stored(
            read_folder(folder, name, Chosen(dtype, weight_format, head_format, kv_format))
        )

    @classmethod
    def from_gguf(
        cls,
        path: Path | str,
        dtype: str | None = None,
        name: str | None = None,
        kv_format: str | None = None,
    ) -> ModelShape:
        """Shape from a GGUF file: its metadata, and the types of its tensors.

        Args:
            path: the file, or the first of a split model's; its data are never read whole but
                for the digest.
            dtype: number format to multiply in; None or "auto" takes that of unquantised
                weights, or float16.
            name: how messages call the model; default the file's name.
            kv_format: format of the cache; default the dtype.

        Raises:
            MissingCapabilityError: the architecture or a tensor's type is not priced yet.
            UsageError: a file is broken, or holds other tensors than its metadata describe.
        """
        file = Path(path)
        return cls.of_stored(
            read_gguf_file(file, name or file.stem, Chosen(dtype, cache=kv_format))
        )

    @classmethod
    def from_path(
        cls,
        path: Path | str,
        dtype: str | None = None,
        name: str | None = None,
        weight_format: str | None = None,
        kv_format: str | None = None,
    ) -> ModelShape:
        """Shape from a GGUF file or a checkpoint folder; see `from_gguf` and `from_folder`.

        Raises:
            UsageError: a weight format is given for a GGUF file, which states that of each tensor.
        """
        if not is_gguf(path):
            return cls.from_folder(path, dtype, name, weight_format, kv_format=kv_format)
        if weight_format is not None or dtype in RUN_FORMATS:
            raise UsageError(
                "a GGUF file states the format of every tensor",
                where=str(path),
                remedy="Leave out weight_format and such a dtype, or name a checkpoint folder.",
            )
        return cls.from_gguf(path, dtype, name, kv_format)

    @classmethod
    def of_stored(cls, model: StoredModel) -> ModelShape:
        """Shape of a model that has been read."""
        decoder = model.decoder
        return cls(
            **{entry.name: getattr(decoder, entry.name) for entry in fields(decoder)},
            name=model.name,
            dtype=model.dtype,
            formats=model.formats,
            kv_format=model.kv_format,
            parameters=sum(parameter_inventory(decoder).values()),
            digest=model.digest,
            states_dtype=model.states_dtype,
        )

    @cached_property
    def weight_bytes(self) -> float:
        """Bytes of all parameters as they are stored, drafter layers excepted."""
        return sum(
            count * self.formats.of_parameters(part).bytes_per_element
            for part, count in parameter_inventory(self).items()
        )

    @property
    def resident_bytes(self) -> float:
        """Bytes of the parameters that lie in the device's memory, buffers included."""
        return self.weight_bytes - (self.placement.spared if self.placement else 0.0)

    @cached_property
    def in_memory(self) -> ModelShape:
        """The same model with all layers in the device's memory."""
        return replace(self, placement=None)

    def sharing(self, devices: int) -> int:
        """How many of a group of devices share each layer."""
        return devices if self.shared_by is None else min(self.shared_by, devices)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: of the routed experts only those it is sent to."""
        return sum(parameter_inventory(self, active=True).values())

    @property
    def drafter_modules(self) -> tuple[ModelShape, ...]:
        """Its multi-token-prediction modules, each as a drafter that borrows its embeddings.

        A module joins the last hidden state with the next token's embedding by a matrix, and
        runs one layer and the model's own head (DeepSeek-V3, arXiv 2412.19437 section 2.2).
        """
        return tuple(self._module(index) for index in range(len(self.drafter_layers)))

    def _module(self, index: int) -> ModelShape:
        module = replace(
            self,
            name=f"{self.name} drafter {index}",
            digest=hashlib.sha256(f"{self.digest} drafter {index}".encode()).hexdigest(),
            layers=(self.drafter_layers[index],),
            drafter_layers=(),
            entry_width=2 * self.hidden_size,
            exit_width=None,
            final_norm_parameters=3 * self.final_norm_parameters,  # of both inputs, and the head's
            learned_positions=0,
            owns_embedding=False,
            owns_head=False,
            placement=None,
        )
        return replace(module, parameters=sum(parameter_inventory(module).values()))

    @cached_property
    def on_own_states(self) -> ModelShape:
        """What a pass costs that reads its own hidden states: nothing is projected to them."""
        return replace(self, feature_width=None)

    @property
    def matmul_parameters(self) -> int:
        """Parameters of the matrices a forward multiplies by: layers and LM head.

        The input embedding, norms and biases are not among them.
        """
        inventory = parameter_inventory(self)
        others = ("embedding", "positions", "norms", "biases", "head")
        layers = sum(count for part, count in inventory.items() if part not in others)
        return layers + self.vocab_size * self.embedding_size

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that one token takes in the caches of all layers."""
        elements = sum(attention.cached_elements for attention in self.attentions)
        return elements * self.kv_format.bytes_per_element

    @property
    def state_width(self) -> float:
        """Bytes of an element of a recurrent state: float32 at least.

        So keep them `backends/eager` and SGLang (`--mamba-ssm-dtype float32`, its default).
        """
        return max(self.activation_width, DTYPE_BYTES["float32"])

    @property
    def state_bytes(self) -> float:
        """Bytes of the recurrent states of one sequence, however long it is; 0 for none."""
        return self.state_elements * self.state_width

    @property
    def attentions(self) -> Iterator[Attention]:
        """Attention of every layer that has it."""
        return (layer.attention for layer in self.layers if layer.attention is not None)

    @property
    def activation_width(self) -> float:
        """Bytes of one activation."""
        return DTYPE_BYTES[self.dtype]

    @cached_property
    def layer_windows(self) -> tuple[int | None, ...]:
        """Per layer, the most tokens that a query sees; None for all, also by a state."""
        return tuple(
            None if layer.attention is None else layer.attention.reach for layer in self.layers
        )

    @property
    def num_heads(self) -> int:
        """Query heads of the layer that has most."""
        return max((attention.num_heads for attention in self.attentions), default=1)
