"""Models from their folders: a checkpoint, and all models of a plan."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from specplan.cost_models.models.architectures.registry import text_config
from specplan.cost_models.models.drafter_shapes import is_drafter_folder
from specplan.cost_models.models.heads.neighbours import is_store_folder
from specplan.cost_models.models.model_shape import is_gguf
from specplan.cost_models.models.number_formats import CACHE_FORMATS, RUN_FORMATS
from specplan.cost_models.placement import BUFFERS
from specplan.cost_models.vision import IMAGE_MODELS
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import model_digest, read_json
from specplan.ir.plan import MODEL_DTYPES, MODULE_PREFIX
from specplan.runtime.images.model import load_image_model
from specplan.runtime.models.attention import ATTENTION_NAME, assert_attention
from specplan.runtime.models.cache_parts.number_types import store_caches
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.families import RotaryFamily, windows_of
from specplan.runtime.models.gguf.model import load_gguf
from specplan.runtime.models.heads.loading import load_head, load_module
from specplan.runtime.models.neighbours.store import load_neighbours
from specplan.runtime.models.streamed import LayerFiles, StreamedLayers
from specplan.runtime.models.supported import FAMILIES, check_supported


def load_all(
    folders: Mapping[str, tuple[Path, str]],
    roles: Iterable[str] = (),
    device: str = "cpu",
    streamed: Mapping[str, int] = MappingProxyType({}),
    caches: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Models by their role in plans.

    Args:
        folders: folder and number type by role, `target` among them; heads run in the target's,
            but for matrices that are rounded.
        roles: that a plan runs; modules of the target, `module_0` and so on, are in its folder.
        device: a torch device.
        streamed: see `load_model`, by role.
        caches: see `load_model`, by role; modules store theirs as the target does.

    Raises:
        UsageError: a checkpoint cannot be read, or is one for another target.
        MissingCapabilityError: an architecture or a form of a head is not supported.
    """
    home, dtype = folders["target"]
    own = caches.get("target")
    target = load_model(
        home, dtype=dtype, device=device, streamed=streamed.get("target", 0), cache=own
    )
    models: dict[str, Any] = {"target": target}
    for role, (folder, dtype) in folders.items():
        if role == "target":
            continue
        if is_store_folder(folder):
            models[role] = load_neighbours(folder, target)
        elif is_drafter_folder(folder):
            head = models[role] = load_head(folder, target)
            if dtype in RUN_FORMATS:
                head.quantize(dtype)
            store_caches(head, caches.get(role))
            head.pack()
        else:
            models[role] = load_model(
                folder,
                dtype=dtype,
                device=device,
                streamed=streamed.get(role, 0),
                cache=caches.get(role),
            )
    for role in roles:
        if role not in models and role.startswith(MODULE_PREFIX):
            index = int(role.removeprefix(MODULE_PREFIX))
            module = models[role] = load_module(home, target, index)
            module.cache_dtype = target.cache_dtype
            module.pack()
    return models


def load_model(
    folder: Path | str,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    streamed: int = 0,
    cache: str | None = None,
) -> CausalModel:
    """Load a checkpoint folder from local files only.

    Args:
        folder: config.json and safetensors, as written by `save_pretrained`, or a GGUF file.
        dtype: one of `MODEL_DTYPES`; "auto" is the dtype of the checkpoint. One of `RUN_FORMATS` is
            that of its matrices, and everything else is float32.
        device: a torch device.
        streamed: how many of the last layers are read from the files in every pass, at most all of
            them; see `runtime/models/streamed.py`. The others are all that is loaded.
        cache: one of `CACHE_FORMATS`, in which keys and values are stored; None for the model's
            own number type.

    Raises:
        UsageError: the folder or `dtype` is wrong.
        MissingCapabilityError: the architecture is not supported, or its layers cannot be read in
            every pass; the message names it.
    """
    folder = Path(folder)
    if dtype not in MODEL_DTYPES:
        raise UsageError(
            f"unknown dtype {dtype!r}",
            where=str(folder),
            remedy=f"Use one of {', '.join(MODEL_DTYPES)}.",
        )
    if cache not in (None, *CACHE_FORMATS):
        raise UsageError(
            f"keys and values are not stored in {cache} here",
            where=str(folder),
            remedy=f"Use one of {', '.join(CACHE_FORMATS)}, or leave it out.",
        )
    made = _loaded(folder, dtype, device, streamed)
    store_caches(made, cache)
    return made


def _loaded(folder: Path, dtype: str, device: str, streamed: int) -> CausalModel:
    if is_gguf(folder):
        return _gguf_model(folder, dtype, device, streamed)
    digest, quantized = model_digest(folder), dtype in RUN_FORMATS
    config = read_json(folder / "config.json", "model configuration")
    sees = config.get("model_type") in IMAGE_MODELS
    check_supported(dict(text_config(config)) if sees else config, str(folder))
    if streamed:
        return _streamed_model(folder, dtype, device, streamed, digest)
    own = "float32" if quantized else dtype
    if sees:
        made: CausalModel = load_image_model(folder, own, device, digest, config)
    else:
        model = _stock_model(folder, own, device)
        made = CausalModel(model, name=folder.resolve().name, digest=digest)
    if quantized:
        made.quantize(dtype)
    return made


def _gguf_model(path: Path, dtype: str, device: str, streamed: int) -> CausalModel:
    if dtype in RUN_FORMATS:
        raise UsageError(
            "a GGUF file states the format of every tensor",
            where=str(path),
            remedy="Leave dtype out, or name a checkpoint folder.",
        )
    if streamed:
        raise MissingCapabilityError(
            "the layers of a GGUF file cannot be read in every pass",
            where=str(path),
            remedy="Leave the placement out, or name a checkpoint folder.",
        )
    return load_gguf(path, dtype, device)


def _stock_model(folder: Path, dtype: str, device: str, **more: Any) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(folder),
        dtype="auto" if dtype == "auto" else getattr(torch, dtype),
        attn_implementation=ATTENTION_NAME,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        **more,
    )
    model.to(device)
    assert_attention(model)
    return model


def _streamed_model(
    folder: Path, dtype: str, device: str, streamed: int, digest: str
) -> CausalModel:
    """A model of which only the first layers and two buffers are loaded."""
    from transformers import AutoConfig
    from transformers.utils import logging

    whole = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    count, kinds = getattr(whole, "num_hidden_layers", 0), getattr(whole, "layer_types", None)
    streamed = min(streamed, count)
    if (
        FAMILIES.get(whole.model_type) is not RotaryFamily
        or dtype in RUN_FORMATS
        or streamed <= BUFFERS
    ):
        raise MissingCapabilityError(
            f"the last {streamed} layers of this {whole.model_type} model cannot be read in every "
            f"pass in {dtype}",
            where=str(folder),
            remedy=f"Place at least {BUFFERS + 1} layers of a Llama, Mistral, Qwen2 or Qwen3 model "
            "in bfloat16, float16 or float32, or leave the placement out.",
        )
    own = copy.deepcopy(whole)
    own.num_hidden_layers = loaded = count - streamed + BUFFERS
    if kinds is not None:
        own.layer_types = kinds[:loaded]
    files, verbosity = LayerFiles(folder), logging.get_verbosity()
    logging.set_verbosity_error()  # that the file holds further layers is no news
    try:
        model = _stock_model(folder, dtype, device, config=own)
    finally:
        logging.set_verbosity(verbosity)
    made = CausalModel(model, name=folder.resolve().name, digest=digest)
    family = made.family
    assert isinstance(family, RotaryFamily)
    layers = family.layers
    resident = count - streamed
    family.layers = StreamedLayers(layers[:resident], layers[resident:], count, files)
    family.windows, made.num_layers = windows_of(whole, count), count
    return made
