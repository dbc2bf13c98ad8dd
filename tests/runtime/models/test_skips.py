"""A pass without some blocks is the pass of a stock model in which these blocks add nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from tests.runtime.tiny_models import CONFIGS, VOCABULARY

TOLERANCE = 1e-4
RECURRENT = ("falcon_h1", "mamba2", "qwen3_next")
NAMES = [name for name in sorted(CONFIGS) if not name.startswith(RECURRENT)]
"""Those whose blocks have one last projection; `test_recurrent_targets.py` skips others' blocks."""
SETS = [
    Skips.of([1]),
    Skips.of((), [0, 2]),
    Skips.of([0, 2], [2]),
    Skips.of([0, 1, 2], [0, 1, 2]),
]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _silenced(stock: Any, skips: Skips) -> Any:
    """A copy whose blocks are the identity: their last projection and its bias are zero."""
    model = copy.deepcopy(stock)
    inner = model.get_decoder() if hasattr(model, "get_decoder") else model.transformer
    layers = inner.h if hasattr(inner, "h") else inner.layers
    for index, layer in enumerate(layers):
        attention = getattr(layer, "attn", None) or layer.self_attn
        mixed = _last(attention, "c_proj", "o_proj", "out_proj")
        last = _last(getattr(layer, "mlp", layer), "c_proj", "down_proj", "fc2")
        for projection, layers_out in ((mixed, skips.attentions), (last, skips.mlps)):
            if index in layers_out:
                for parameter in projection.parameters():
                    parameter.data.zero_()
    return model


def _last(block: Any, *names: str) -> Any:
    return next(module for name, module in block.named_children() if name in names)


def _logits(model: CausalModel, text: torch.Tensor, skips: Skips) -> torch.Tensor:
    count = text.shape[1]
    places = torch.arange(count)[None]
    mask = torch.ones(1, count, count, dtype=torch.bool).tril()
    cache = model.new_cache(1, count)
    return model.logits(model.hidden(text, places, places, mask, cache, skips=skips))


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_rows_are_those_of_a_model_without_the_blocks(name: str, tiny: Callable[..., Path]) -> None:
    folder = tiny(name)
    stock = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    model = load_model(folder, dtype="float32")
    text = torch.randint(VOCABULARY, (1, 14), generator=torch.Generator().manual_seed(2))
    whole = _logits(model, text, NO_SKIPS)
    for skips in SETS:
        expected = _silenced(stock, skips)(text).logits
        skipped = _logits(model, text, skips)
        assert (skipped - expected).abs().max() < TOLERANCE, skips
        assert (skipped - whole).abs().max() > 100 * TOLERANCE, skips


def test_attentions_left_out_write_nothing(tiny: Callable[..., Path]) -> None:
    model = load_model(tiny("llama"), dtype="float32")
    cache = model.new_cache(1, 4)
    places = torch.arange(4)[None]
    mask = torch.ones(1, 4, 4, dtype=torch.bool).tril()
    model.hidden(places, places, places, mask, cache, skips=Skips.of([1], [0]))
    written = [bool(keys.any()) for keys in cache.keys]
    assert written == [True, False, True]
