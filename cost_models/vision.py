"""What images cost a target that sees them: places in its prompt, and passes of a vision tower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.layers import DenseMlp, GroupedAttention, LayerShape
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import WeightFormats
from specplan.cost_models.models.parameters import parameter_inventory
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import read_json

IMAGE_MODELS = frozenset({"llava"})
"""Model types whose images are priced and run."""


@dataclass(frozen=True, kw_only=True)
class SeeingShape(ModelShape):
    """A target whose prompts hold images.

    Attributes:
        vision: the tower that reads them, over `max_positions` places each.
        images: of each prompt.
    """

    vision: ModelShape
    images: int

    @property
    def resident_bytes(self) -> float:
        """With those of the tower."""
        return super().resident_bytes + self.vision.weight_bytes


def image_tokens(config: Mapping[str, Any], where: str) -> int:
    """Embeddings that stand in a prompt for one image: the patches, and the class token if kept.

    Args:
        config: of a model of LLaVA's form.
        where: for errors, e.g. the folder.

    Raises:
        UsageError: the config has no sizes of its vision tower.
    """
    whole = config.get("vision_feature_select_strategy", "default") == "full"
    return _patches(config, where) + int(whole)


def with_images(
    target: ModelShape, folder: Path, images: int, shortest: int | None = None
) -> SeeingShape:
    """A target whose prompts hold images, each of which its vision tower reads first.

    The tower is CLIP's (arXiv 2103.00020): pre-norm layers with biases and plain MLPs over all
    patches and a class token, in the target's number type; the projector behind it is priced as
    one matrix (LLaVA's second one, `hidden_size` squared, is left out of times and memory).

    Args:
        target: the shape of the language model.
        folder: of the whole model.
        images: of each prompt.
        shortest: tokens of the shortest prompt, those of the images included; None if unknown.

    Raises:
        MissingCapabilityError: the model sees no images, or by a tower of another form.
        UsageError: the config has no sizes of its vision tower, or a prompt no room for the images.
    """
    config, where = read_json(folder / "config.json", "model configuration"), str(folder)
    vision = Config(config.get("vision_config") or {}, where)
    if config.get("model_type") not in IMAGE_MODELS or vision.family != "clip_vision_model":
        kind = config.get("model_type")
        raise MissingCapabilityError(
            f"images of a target of type {kind} ({vision.family}) have no price",
            where=where,
            remedy="Leave workload.images out, or give a LLaVA with a tower of CLIP's form.",
        )
    taken = images * image_tokens(config, where)
    if shortest is not None and shortest <= taken:
        raise UsageError(
            f"the images take {taken} tokens of a prompt, and it has {shortest}",
            where="workload.images",
            remedy="Count them in the length of the prompt.",
        )
    tower = _tower(target, vision, _patches(config, where))
    own = {one.name: getattr(target, one.name) for one in fields(target)}
    return SeeingShape(**own, vision=tower, images=images)


def _tower(target: ModelShape, vision: Config, patches: int) -> ModelShape:
    """A vision tower in the number type of its target; see `with_images`."""
    width, heads = vision.size("hidden_size"), vision.size("num_attention_heads")
    attention = GroupedAttention(heads, heads, width // heads, input_bias=True, output_bias=True)
    mlp = DenseMlp(vision.size("intermediate_size"), gated=False, bias=True)
    layer = LayerShape(attention, mlp, 4 * width)
    places = patches + 1
    tower = replace(
        target,
        name=f"{target.name} vision tower",
        architecture=vision.family,
        hidden_size=width,
        layers=(layer,) * vision.size("num_hidden_layers"),
        drafter_layers=(),
        max_positions=places,
        learned_positions=places,
        final_norm_parameters=5 * width,  # before and after the layers, and the class token
        embedding_size=target.hidden_size,
        entry_width=3 * vision.size("patch_size") ** 2,
        exit_width=target.hidden_size,
        owns_embedding=False,
        owns_head=False,
        formats=WeightFormats.uniform(target.formats.other),
        placement=None,
    )
    return replace(tower, parameters=sum(parameter_inventory(tower).values()))


def _patches(config: Mapping[str, Any], where: str) -> int:
    vision = Config(config.get("vision_config") or {}, where)
    return (vision.size("image_size") // vision.size("patch_size")) ** 2
