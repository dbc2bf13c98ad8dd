"""Heads with joined projections compute what their stock layers compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.loading import load_model
from tests.runtime.heads import bodies, formats
from tests.runtime.heads.test_families import TEXT, features_of, target

__all__ = ["target"]
PACKED = {
    "eagle3": formats.eagle3(), "eagle": formats.eagle1(), "dflash": formats.dflash(),
    "beside": formats.parallel_layers(), "clover 2": bodies.clover(),
}  # fmt: skip
MODELS = Path(__file__).parents[3] / "examples/reference_models"
STOCK = {"kangaroo": formats.kangaroo(), "medusa": formats.medusa()}


def passed(head: Drafter, states: Tensor) -> Tensor:
    """States after a pass over the text; where keys and values can be written alone, they are."""
    tokens, positions = torch.tensor([TEXT]), torch.arange(len(TEXT))[None]
    known, steps = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
    entered = head.enter(tokens, positions, states, known, steps)
    mask = torch.ones(1, len(TEXT), len(TEXT), dtype=torch.bool).tril()
    cache = head.new_cache(1, len(TEXT))
    after = head.hidden(tokens, positions, positions, mask, cache, features=entered)
    if head.fills:
        other = head.new_cache(1, len(TEXT))
        head.fill(entered, positions, positions, other)
        for mine, theirs in zip(cache.keys + cache.values, other.keys + other.values, strict=True):
            torch.testing.assert_close(mine[:, :, :-1], theirs[:, :, :-1], rtol=0, atol=1e-12)
    return after


@pytest.mark.parametrize("case", PACKED | STOCK)
def test_packed_layers_are_the_stock_ones(case: str, target: CausalModel, tmp_path: Path) -> None:
    head = load_head((PACKED | STOCK)[case].save(tmp_path), target)
    states = features_of(head, target)
    before, weights = passed(head, states), {k: w.clone() for k, w in head.weights().items()}
    head.pack()
    assert (head.layers is not None and bool(head.layers.packed)) == (case in PACKED)
    assert head.fills == (case in ("eagle3", "eagle"))
    torch.testing.assert_close(passed(head, states), before, rtol=0, atol=2e-6)
    after = head.weights()
    assert all(torch.equal(after[name], weight) for name, weight in weights.items())
    for name, weight in head.named_parameters() if case in PACKED else ():
        if "q_proj.weight" in name:  # one memory for both
            joined = {w.untyped_storage().data_ptr() for k, w in after.items() if "qkv" in k}
            assert weight.untyped_storage().data_ptr() in joined


@pytest.mark.parametrize("name", ["eagle", "eagle3", "medusa"])
def test_rounded_heads_compute_with_their_blocks(name: str, shipped: CausalModel) -> None:
    """Packed or not, and near the head that they were rounded from."""
    head, rounded = (load_head(MODELS / "heads" / name, shipped) for _ in range(2))
    rounded.quantize("Q8_0")
    assert rounded.quantized and rounded.digest != head.digest
    states = features_of(head, shipped)
    before, exact = (logits_of(one, states) for one in (rounded, head))
    rounded.pack()
    torch.testing.assert_close(logits_of(rounded, states), before, rtol=0, atol=5e-3)
    error = (before - exact).norm() / exact.norm()
    assert 0 < error < 0.03


@pytest.fixture(scope="module")
def shipped() -> CausalModel:
    return load_model(MODELS / "target", dtype="float32")


def logits_of(head: Drafter, states: Tensor) -> Tensor:
    return head.rows(passed(head, states), "logits", torch.zeros(1, len(TEXT)).long())
