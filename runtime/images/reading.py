"""Images from files or arrays to pixels, and prompts with a place for each of their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from specplan.cost_models.vision import IMAGE_MODELS, image_tokens
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json
from specplan.runtime.images.inputs import Images


class ImageReader:
    """The image processor of a target, and what stands for an image in its prompts.

    Args:
        folder: of the target's checkpoint.

    Raises:
        UsageError: the target sees no images, or has no image processor that can be read.
    """

    def __init__(self, folder: Path | str) -> None:
        config = read_json(Path(folder) / "config.json", "model configuration")
        kind = config.get("model_type")
        if kind not in IMAGE_MODELS:
            raise UsageError(
                f"a request has an image, and a target of type {kind} sees none",
                where=str(folder),
                remedy=f"Leave the image out, or give a target of type {', '.join(IMAGE_MODELS)}.",
            )
        self.token = int(config.get("image_token_index", config.get("image_token_id", 32000)))
        self.count = image_tokens(config, str(folder))
        from transformers import AutoImageProcessor

        try:
            self.processor: Any = AutoImageProcessor.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, backend="pil"
            )
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(
                f"cannot load an image processor ({error})",
                where=str(folder),
                remedy="The folder needs preprocessor_config.json or processor_config.json.",
            ) from error

    def read(self, prompt: Sequence[int], images: Sequence[Any]) -> tuple[tuple[int, ...], Images]:
        """A prompt whose image tokens are as many as its images have embeddings, and the images.

        Args:
            prompt: tokens, with one image token where each image stands.
            images: a path, an array `[height, width, 3]` of bytes or a picture of Pillow each.

        Raises:
            UsageError: the prompt has places for another number of images, or a file is no image.
        """
        places = sum(token == self.token for token in prompt)
        if places != len(images):
            raise UsageError(
                f"the prompt has places for {places} images, and there are {len(images)}",
                remedy="Write the image token, such as <image>, where each image stands.",
            )
        wide = [
            one for token in prompt for one in [token] * (self.count if token == self.token else 1)
        ]
        opened = [_opened(image) for image in images]
        pixels = self.processor(images=opened, return_tensors="pt")["pixel_values"]
        return tuple(wide), Images(torch.as_tensor(pixels), self.token)


def _opened(image: Any) -> Any:
    from PIL import Image

    if not isinstance(image, str | Path):
        return image
    try:
        return Image.open(image).convert("RGB")
    except OSError as error:
        raise UsageError(
            f"cannot read an image ({error})",
            where=str(image),
            remedy="Name a file of a picture, such as PNG or JPEG.",
        ) from error
