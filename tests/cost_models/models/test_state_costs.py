"""What a pass over recurrent states uses, against the plain sums of the definition."""

from __future__ import annotations

import pytest

from specplan.cost_models.cost import OpCost
from specplan.cost_models.models.forward import forward_cost, forward_ops, splits_evenly
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import Skips
from tests.cost_models.models.test_published_sizes import QWEN3_NEXT, WITH_STATES

FALCON, _ = WITH_STATES["falcon-h1-34b"]
MAMBA, _ = WITH_STATES["mamba2-2.7b"]


def scan(config: dict[str, object], tokens: int, rows: int, context: int = 1000) -> OpCost:
    """The scan of every layer of a batch of two."""
    ops = forward_ops(ModelShape.from_config(config), 2, tokens, context, rows)
    (one,) = [op for op in ops if op.name == "state_scan"]
    return one


def test_a_verification_stores_a_state_for_every_node_and_a_prompt_one() -> None:
    state = ModelShape.from_config(FALCON).state_bytes
    assert scan(FALCON, 1, 1).total.kv_bytes == 2 * 2 * state
    assert scan(FALCON, 6, 6).total.kv_bytes == 2 * 7 * state
    assert scan(FALCON, 1000, 1).total.kv_bytes == 2 * 2 * state


def test_operations_grow_by_token_and_not_by_context() -> None:
    """72 layers: 5 operations per element of 32 states of 128 x 256, 4 taps of 5,120 channels."""
    assert scan(FALCON, 1, 1).total.flops == 2 * 72 * (5 * 32 * 128 * 256 + 2 * 4 * 5120)
    assert scan(FALCON, 7, 1).total.flops == 7 * scan(FALCON, 1, 1).total.flops
    assert scan(FALCON, 7, 1, 10).cost == scan(FALCON, 7, 1, 100_000).cost
    shape = ModelShape.from_config(MAMBA)
    assert forward_cost(shape, 1, 1, 10) == forward_cost(shape, 1, 1, 100_000)


@pytest.mark.parametrize("config", [FALCON, QWEN3_NEXT, MAMBA])
def test_a_pass_reads_all_weights_but_the_embedding(config: dict[str, object]) -> None:
    """Norms and biases of the convolution aside, which fused kernels read in passing."""
    shape = ModelShape.from_config(config | {"num_experts_per_tok": 512, "tie_word_embeddings": 0})
    table = shape.vocab_size * shape.hidden_size
    read = forward_cost(shape, 1, 1, 0).weight_bytes / 2
    assert read == pytest.approx(shape.parameters - table, rel=1e-3)


def test_devices_share_the_heads_of_states() -> None:
    shape = ModelShape.from_config(QWEN3_NEXT)
    whole, quarter = (
        [op for op in forward_ops(shape, 8, 2, 500, tensor_parallel=n) if "state" in op.name]
        for n in (1, 4)
    )
    for one, part in zip(whole, quarter, strict=True):
        assert part.cost.kv_bytes == one.cost.kv_bytes / 4
        assert part.cost.flops == one.cost.flops / 4
    assert splits_evenly(shape, 8) and not splits_evenly(shape, 3)


def test_whoever_skips_attention_skips_the_mixer_beside_it() -> None:
    shape = ModelShape.from_config(FALCON)
    skipped = Skips(attentions=frozenset(range(72)), mlps=frozenset())
    names = {op.name for op in forward_ops(shape, 1, 1, 0, skips=skipped)}
    assert names == {"mlp_up", "mlp_down", "lm_head"}
