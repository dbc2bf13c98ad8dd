"""A model as it is stored: structure, number formats and identity, from any of three sources."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.registry import read_decoder, text_config
from specplan.cost_models.models.files.quantization import read_formats
from specplan.cost_models.models.files.safetensors_headers import (
    DTYPE_NAMES,
    Tensor,
    config_identity,
    read_config,
    stored_tensors,
)
from specplan.cost_models.models.files.stored_parts import (
    check_elements,
    exact_formats,
    is_parameter,
    part_of,
)
from specplan.cost_models.models.layers import Decoder
from specplan.cost_models.models.number_formats import (
    CACHE_FORMATS,
    DTYPE_BYTES,
    OUTER_FORMAT,
    RUN_FORMATS,
    NumberFormat,
    WeightFormats,
    joined,
    number_format,
)
from specplan.cost_models.models.parameters import parameter_inventory
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import cached_digest, files_digest, model_digest, quantized_digest

ASSUMED_DTYPE = "bfloat16"
"""The dtype of a model whose config.json states none and whose weights are not there."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the caller wants instead of what is stored; None for as it is.

    Attributes:
        dtype: number format of activations; "auto" is None. One of `RUN_FORMATS` is that of the
            matrices, with everything else in float32.
        weights: format of the layers' matrices.
        head: format of the LM head.
        cache: format of the cache.
    """

    dtype: str | None = None
    weights: str | None = None
    head: str | None = None
    cache: str | None = None

    @property
    def stated_dtype(self) -> str | None:
        """The dtype, unless it is left open."""
        if self.dtype in RUN_FORMATS:
            return "float32"
        return None if self.dtype == "auto" else self.dtype

    @property
    def matrices(self) -> str | None:
        """Format of the layers' matrices, unless it is left open."""
        return self.dtype if self.dtype in RUN_FORMATS else self.weights

    def identity(self, digest: str, dtype: str) -> str:
        """Identity of a checkpoint as it is run, with activations in a number type."""
        if self.dtype in RUN_FORMATS:
            digest = quantized_digest(digest, self.dtype)
        if self.cache in CACHE_FORMATS and self.cache != dtype:
            digest = cached_digest(digest, self.cache)
        return digest


UNCHANGED = Chosen()
"""All as it is stored."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """Structure, formats and identity; see `ModelShape`."""

    decoder: Decoder
    name: str
    dtype: str
    formats: WeightFormats
    kv_format: NumberFormat
    digest: str
    states_dtype: bool


def read_stated(config: Mapping[str, Any], name: str, chosen: Chosen) -> StoredModel:
    """A model from its parsed config.json alone; see `ModelShape.from_config`."""
    decoder = read_decoder(config, name)
    return stated_model(decoder, config, name, chosen)


def read_folder(folder: Path, name: str, chosen: Chosen) -> StoredModel:
    """A model from a checkpoint folder; see `ModelShape.from_folder`."""
    config = read_config(folder)
    decoder = read_decoder(config, str(folder))
    tensors = {
        key: tensor for key, tensor in stored_tensors(folder).items() if is_parameter(key, decoder)
    }
    if not tensors:
        return stated_model(decoder, config, name, chosen)
    packed = bool(text_config(config).get("quantization_config"))
    if not packed:
        _check_parameters(decoder, tensors, folder)
        if chosen.stated_dtype is None:
            chosen = replace(chosen, dtype=_stored_dtype(tensors, folder))
    model = stated_model(decoder, config, name, chosen)
    model = replace(model, digest=chosen.identity(model_digest(folder), model.dtype))
    if packed and chosen.matrices is None and chosen.head is None:
        stored = [(part_of(key), tensor.bytes) for key, tensor in tensors.items()]
        exact = exact_formats(decoder, model.formats, stored, str(folder))
        model = replace(model, formats=exact)
    return model


def read_gguf_file(path: Path, name: str, chosen: Chosen) -> StoredModel:
    """A model from a GGUF file; see `ModelShape.from_gguf`."""
    from specplan.cost_models.models.files.gguf_config import (
        config_of_gguf,
        formats_as_run,
        formats_by_part,
        is_plain,
        stored_dtype,
    )
    from specplan.cost_models.models.files.gguf_headers import read_gguf

    model = read_gguf(path)
    config = config_of_gguf(model)
    decoder = read_decoder(config, str(path))
    counts = formats_by_part(model)
    check_elements(decoder, counts, str(path))
    if decoder.tied_embeddings:
        counts["head"] = counts["embedding"]
    if chosen.stated_dtype is None:
        chosen = replace(chosen, dtype=stored_dtype(counts))
    elif chosen.stated_dtype == "float32" or is_plain(model):
        counts = formats_as_run(counts, chosen.stated_dtype)
    parts = {part: joined(forms) for part, forms in counts.items()}
    stated = stated_model(decoder, config, name, chosen)
    formats = replace(stated.formats, **parts)
    digest = chosen.identity(files_digest(model.files), stated.dtype)
    return replace(stated, formats=formats, digest=digest)


def stated_model(
    decoder: Decoder, config: Mapping[str, Any], name: str, chosen: Chosen
) -> StoredModel:
    """A structure with the number formats and the identity that its config.json states."""
    text = Config(text_config(config), name)
    keys = (config.get(key) or text.get(key) for key in ("dtype", "torch_dtype"))
    stated = chosen.stated_dtype or next(filter(None, keys), None)
    dtype = ASSUMED_DTYPE if stated is None else str(stated)
    if dtype not in DTYPE_BYTES:
        raise UsageError(
            f"dtype {dtype!r} is unknown",
            where=name,
            remedy=f"Use one of {', '.join(sorted(DTYPE_BYTES))}.",
        )
    if chosen.matrices is None:
        formats, cache = read_formats(text, decoder, dtype)
    else:
        cache = number_format(dtype)
        formats = WeightFormats.uniform(cache).with_matrices(number_format(chosen.matrices, name))
    head = OUTER_FORMAT if chosen.dtype in RUN_FORMATS else chosen.head
    if head is not None:
        formats = replace(formats, head=number_format(head, name))
    if chosen.cache is not None:
        cache = number_format(chosen.cache, name)
    digest = chosen.identity(hashlib.sha256(config_identity(config)).hexdigest(), dtype)
    return StoredModel(decoder, name, dtype, formats, cache, digest, stated is not None)


def _check_parameters(decoder: Decoder, tensors: Mapping[str, Tensor], folder: Path) -> None:
    stored = sum(tensor.elements for tensor in tensors.values())
    check_count(stored, sum(parameter_inventory(decoder).values()), folder)


def check_count(stored: int, described: int, folder: Path) -> None:
    """Refuse weights with other parameters than config.json describes.

    Raises:
        UsageError: they differ.
    """
    if stored != described:
        raise UsageError(
            f"the weights hold {stored} parameters, config.json describes {described}",
            where=str(folder),
            remedy="Take config.json and weights from the same checkpoint.",
        )


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
