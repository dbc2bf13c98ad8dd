"""Targets that see images: a language model, and a vision tower whose states enter its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specplan.cost_models.vision import image_tokens
from specplan.runtime.images.inputs import ImageInputs
from specplan.runtime.models.attention import ATTENTION_NAME, assert_attention
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request


class ImageModel(CausalModel):
    """A causal model that reads embeddings of images in its prompts; see `CausalModel`.

    Attributes:
        image_token: id that stands in a prompt for each embedding.
    """

    def __init__(self, whole: Any, text: Any, *, name: str, digest: str) -> None:
        super().__init__(text, name=name, digest=digest)
        whole.requires_grad_(False).eval()
        self._whole = whole
        self._requests: Sequence[Request] = ()
        self._inputs: ImageInputs | None = None
        self.image_token: int = whole.config.image_token_id
        self.image_tokens = image_tokens(whole.config.to_dict(), name)

    def see(self, pixels: Tensor) -> Tensor:
        """Embeddings `[n * image_tokens, hidden]` of images `[n, channels, height, width]`."""
        pixels = pixels.to(self.device, self.dtype)
        seen = self._whole.get_image_features(pixel_values=pixels, return_dict=True)
        return torch.cat(tuple(seen.pooler_output), 0)

    def images_of(self, requests: Sequence[Request]) -> ImageInputs | None:
        """See `Module.images_of`: with the embeddings of the vision tower.

        All caches of a batch have the same, so that the tower reads an image once.
        """
        if requests is not self._requests:
            every = [request.images.pixels for request in requests if request.images is not None]
            self._requests = requests
            self._inputs = ImageInputs.of(requests, self.device, lambda: self.see(torch.cat(every)))
        return self._inputs


def load_image_model(
    folder: Path, dtype: str, device: str, digest: str, config: Mapping[str, Any]
) -> ImageModel:
    """A model that sees images, from a checkpoint of LLaVA's form.

    Args:
        folder: of the checkpoint.
        dtype: a torch dtype's name, or "auto".
        device: a torch device.
        digest: of the checkpoint.
        config: its config.json, checked.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.utils import logging

    logging.disable_progress_bar()
    whole: Any = AutoModelForImageTextToText.from_pretrained(
        str(folder),
        dtype="auto" if dtype == "auto" else getattr(torch, dtype),
        attn_implementation={"text_config": ATTENTION_NAME, "vision_config": "sdpa"},
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    whole.to(device)
    with torch.device("meta"):  # the frame alone: what it holds is that of the whole model
        text: Any = AutoModelForCausalLM.from_config(whole.config.text_config)
    text.model, text.lm_head = whole.model.language_model, whole.lm_head
    assert_attention(text.model)
    return ImageModel(whole, text, name=folder.resolve().name, digest=digest)
