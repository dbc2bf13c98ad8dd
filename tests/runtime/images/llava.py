"""A tiny random LLaVA beside a draft model of text alone, with a tokenizer and image processor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

VOCABULARY = 61
IMAGE = 7
"""The image token."""
SIDE, PATCH = 12, 4
SCALE = 4.0
"""Of the embeddings: the last token decides more of the next one than what stands before it."""
PLACES = (SIDE // PATCH) ** 2
"""Embeddings of an image."""


def save_llava(
    folder: Path, *, vocabulary: int = VOCABULARY, image: int = IMAGE, layers: int = 2
) -> None:
    """Save `target`, a LLaVA, and `draft`, its language model, which sees no image."""
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 160,
        "initializer_range": 0.25,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    vision = transformers.CLIPVisionConfig(
        hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=3,
        image_size=SIDE, patch_size=PATCH, projection_dim=24, initializer_range=0.5,
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=transformers.LlamaConfig(**sizes),
        image_token_index=image,
        image_seq_length=PLACES,
    )
    torch.manual_seed(0)
    target = transformers.LlavaForConditionalGeneration(config).double()
    for part in target.model.multi_modal_projector.parameters():
        torch.nn.init.normal_(part, std=0.3)
    target.model.language_model.embed_tokens.weight.data *= SCALE
    target.save_pretrained(folder / "target")
    processor = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": SIDE},
        "crop_size": {"height": SIDE, "width": SIDE},
        "image_mean": [0.5] * 3,
        "image_std": [0.3] * 3,
    }
    (folder / "target/preprocessor_config.json").write_text(json.dumps(processor))
    draft = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).double()
    draft.model.load_state_dict(target.model.language_model.state_dict())
    draft.lm_head.load_state_dict(target.lm_head.state_dict())
    draft.save_pretrained(folder / "draft")


def picture(seed: int) -> NDArray[np.uint8]:
    """An image of random bytes, higher than wide."""
    return np.random.default_rng(seed).integers(0, 256, (20, 16, 3), dtype=np.uint8)


def add_tokenizer(source: Path, folder: Path) -> None:
    """The tokenizer of another checkpoint for both models."""
    for name in ("target", "draft"):
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(source / file, folder / name / file)
