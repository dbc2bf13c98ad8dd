"""Drafters that read a target's hidden states, as shapes that pricing knows, without weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specplan.cost_models.models.drafter_configs import (
    DrafterKind,
    is_drafter,
    read_drafter_config,
)
from specplan.cost_models.models.files.safetensors_headers import read_config, stored_tensors
from specplan.cost_models.models.files.stored_model import (
    UNCHANGED,
    Chosen,
    check_count,
    stated_model,
)
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.cost_models.models.parameters import parameter_inventory
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import UsageError
from specplan.ir.files import model_digest

_BUFFERS = ("d2t", "t2d", "inv_freq", "embed_tokens.weight", "token_map", "mask_hidden",
            "next_tokens", "documents")  # fmt: skip
"""Last parts of names of tensors that are no parameters of the drafter, or that it may borrow."""


@dataclass(frozen=True)
class DrafterShape:
    """A drafter that cannot run without its target's hidden states.

    Attributes:
        kind: see `DrafterConfig`.
        family: of its format, such as `eagle3`.
        shape: what its passes cost.
        feature_layers: after how many layers of the target the hidden states are taken.
        block: most tokens drafted by one pass, or by all steps of its own; 1 for `recurrent`.
        mask_token: the token that stands where a block is to be drafted; None without one.
        reads_above: states enter with the token behind their own, not with their own.
        skips: blocks of the target that its pass leaves out.
        enters: the target's layer at which its slots enter.
    """

    kind: DrafterKind
    family: str
    shape: ModelShape
    feature_layers: tuple[int, ...]
    block: int = 1
    mask_token: int | None = None
    reads_above: bool = True
    skips: Skips = NO_SKIPS
    enters: int = 0


def is_drafter_folder(folder: Path | str) -> bool:
    """Whether a folder holds such a drafter, priced or not; a broken folder does not."""
    try:
        return is_drafter(read_config(Path(folder)))
    except UsageError:
        return False


def read_drafter(
    folder: Path | str,
    target: ModelShape,
    *,
    name: str | None = None,
    dtype: str | None = None,
    weight_format: str | None = None,
    kv_format: str | None = None,
) -> DrafterShape:
    """Shape of a drafter from its folder: config.json, and the headers of safetensors if any.

    Its positions are the target's: engines run heads past the length they were trained at. So is
    its dtype unless another is chosen, as engines and our runtime have it.

    Args:
        folder: of a head in one of the public formats.
        target: what it drafts for.
        name: how messages call it; default the folder's name.
        dtype: number format to run in; None or "auto" takes the target's, in which everything is
            but matrices that it rounds.
        weight_format: see `ModelShape.from_config`.
        kv_format: see `ModelShape.from_config`.

    Raises:
        MissingCapabilityError: a form that is not priced.
        UsageError: a broken folder, or a drafter for another target.
    """
    path = Path(folder)
    if dtype in RUN_FORMATS and target.dtype != "float32":
        raise UsageError(
            f"heads whose target is in {target.dtype} do not run in {dtype}",
            where=str(path),
            remedy=f"Load the target in float32 or {dtype}, or leave out the head's dtype.",
        )
    chosen = Chosen(dtype, weight_format, cache=kv_format)
    described = described_drafter(
        read_config(path), target, name or path.resolve().name, chosen, where=str(path)
    )
    if not _check_weights(path, described):
        return described
    digest = chosen.identity(model_digest(path), described.shape.dtype)
    return replace(described, shape=replace(described.shape, digest=digest))


def described_drafter(
    config: Mapping[str, Any],
    target: ModelShape,
    name: str,
    chosen: Chosen = UNCHANGED,
    *,
    where: str = "config.json",
) -> DrafterShape:
    """Shape of a drafter from its config.json alone, for one that need not be there yet.

    Args:
        config: the parsed config.json.
        target: what it drafts for.
        name: how messages call it.
        chosen: number formats; its dtype is the target's where it is left open.
        where: its path, for errors.

    Raises:
        MissingCapabilityError: a form that is not priced.
        UsageError: a broken config, or a drafter for another target.
    """
    drafter = read_drafter_config(config, target, where)
    inner = {**config, **(config.get("transformer_layer_config") or {})}
    decoder = replace(drafter.decoder, max_positions=target.max_positions)
    if drafter.kind == "neighbours":  # distances are taken so
        chosen = replace(chosen, dtype="float32")
    if chosen.dtype not in RUN_FORMATS:
        chosen = replace(chosen, dtype=chosen.stated_dtype or target.dtype)
    shape = ModelShape.of_stored(stated_model(decoder, inner, name, chosen))
    if chosen.dtype in RUN_FORMATS:  # what joins and projects states is a matrix too
        shape = replace(shape, formats=replace(shape.formats, other=shape.formats.mlp))
    return DrafterShape(
        drafter.kind,
        drafter.description.family,
        shape,
        drafter.feature_layers,
        drafter.block,
        drafter.mask_token,
        drafter.description.begins > 0,
        drafter.description.levels.skips,
        drafter.description.levels.enters,
    )


def _check_weights(folder: Path, drafter: DrafterShape) -> bool:
    """Whether there are weights; they must be those that config.json describes."""
    tensors = stored_tensors(folder)
    if not tensors:
        return False
    if drafter.kind == "steps" or drafter.family in ("clover", "chimera"):  # steps
        return True
    decoder = drafter.shape
    inventory = parameter_inventory(decoder)
    described = sum(inventory.values()) - inventory["embedding"]
    stored = sum(
        tensor.elements
        for name, tensor in tensors.items()
        if not name.endswith(_BUFFERS) and (decoder.owns_head or "lm_head" not in name)
    )
    check_count(stored, described, folder)
    return True
