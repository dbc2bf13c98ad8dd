"""Operations of real models, counted by PyTorch itself, equal those of our formulas."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from specplan.cost_models.cost import OpCost
from specplan.cost_models.models.forward import forward_cost, forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from tests.cost_models.models.tiny_families import TINY

BATCH, TOKENS = 3, 11


def counted(kind: str, **changes: Any) -> tuple[ModelShape, int]:
    """A tiny model's shape, and the operations of a prefill that PyTorch counts."""
    transformers = pytest.importorskip("transformers")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    family, sizes = TINY[kind]
    config = transformers.AutoConfig.for_model(family, **(sizes | changes))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(torch.arange(BATCH * TOKENS).view(BATCH, TOKENS), use_cache=False)
    return ModelShape.from_config(config.to_dict(), name=kind), counter.get_total_flops()


def products(op: OpCost) -> Any:
    """Operations of a matrix product without its biases."""
    assert op.matrix is not None
    rows, inputs, outputs, copies = astuple(op.matrix)
    return 2 * copies * rows * inputs * outputs


@pytest.mark.parametrize(
    "kind", ["llama", "qwen3", "gpt2", "opt-no-bias", "gemma", "mixtral", "deepseek_v3"]
)
def test_prefill_operations(kind: str) -> None:
    """Eager attention computes all pairs of the block; biases and rotary angles apart."""
    changes: dict[str, Any] = {"attention_bias": False} if kind == "qwen3" else {}
    rotary = {"llama": 8, "mixtral": 8, "qwen3": 16, "gemma": 16, "deepseek_v3": 4}.get(kind, 0)
    shape, operations = counted(kind, **changes)
    ops = forward_ops(shape, BATCH, TOKENS, 0, dense_block=True)
    biases = sum(op.count * (op.cost.flops - products(op)) for op in ops if op.matrix is not None)
    ours = forward_cost(shape, BATCH, TOKENS, 0, dense_block=True).flops - biases
    angles = 2 * TOKENS * rotary // 2  # positions times frequencies, once or per sequence
    assert round(operations - ours, 3) in (0, angles, BATCH * angles)
    assert (round(biases, 3) > 0) == (kind == "gpt2")
