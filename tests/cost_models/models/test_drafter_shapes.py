"""Drafters that read hidden states: sizes known from public checkpoints, refusals by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from specplan.cost_models.models.drafter_shapes import DrafterShape, is_drafter_folder, read_drafter
from specplan.cost_models.models.forward import forward_cost, forward_ops
from specplan.cost_models.models.heads.dflash import spread_layers
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import MissingCapabilityError, UsageError

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
EAGLE3: dict[str, Any] = LLAMA_8B | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "draft_vocab_size": 32000,
    "tie_word_embeddings": False,
}
QWEN3_8B: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 36,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}
DFLASH: dict[str, Any] = QWEN3_8B | {
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 5,
    "num_target_layers": 36,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}


def read(folder: Path, config: dict[str, Any], target: dict[str, Any] = LLAMA_8B) -> DrafterShape:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert is_drafter_folder(folder)
    return read_drafter(folder, ModelShape.from_config(target, name="target"), name="head")


def test_a_head_for_llama_3_1_8b_has_its_published_size(tmp_path: Path) -> None:
    """model.safetensors of such a head (SpecForge llama3-8B-eagle3.json) takes 811 MiB,
    as `ls -h` rounds it up.

    By hand: joining matrix 3 h h, attention from 2 h, MLP, 4 norms, a head of 32000 rows.
    """
    head = read(tmp_path, EAGLE3)
    hidden, inner, key = 4096, 14336, 1024
    by_hand = 3 * hidden * hidden + 2 * hidden * (hidden + 2 * key) + hidden * hidden
    by_hand += 3 * hidden * inner + 4 * hidden + 32000 * hidden
    assert head.shape.parameters == by_hand
    buffers = 8 * 32000 + 128256  # ids of the draft vocabulary, and which tokens are in it
    assert math.ceil((head.shape.weight_bytes + buffers) / 2**20) == 811
    assert head.kind == "recurrent" and head.feature_layers == (2, 16, 29) and head.block == 1
    assert head.shape.vocab_size == 32000 and head.shape.max_positions == 131072
    assert head.shape.kv_bytes_per_token == 2 * 1024 * 2


def test_the_joining_matrix_is_read_once_a_round(tmp_path: Path) -> None:
    shape = read(tmp_path, EAGLE3).shape
    first = forward_cost(shape, 1, 1, 100).weight_bytes
    later = forward_cost(shape.on_own_states, 1, 1, 100).weight_bytes
    assert first - later == 2 * 3 * 4096 * 4096
    norms = 2 * 4 * 4096
    assert first == shape.weight_bytes - norms


def test_drafted_tokens_of_clover_pass_no_layers(tmp_path: Path) -> None:
    """Clover-2 for Vicuna 7B by hand: layers, blocks, and matrices on one vector and on two."""
    vicuna = LLAMA_8B | {"intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
    config = vicuna | {"num_hidden_layers": 1, "clover": {"num_heads": 5, "num_layers": 2}}
    head, wide = read(tmp_path, config, vicuna), 4096
    layers = 2 * (4 * wide * wide + 3 * wide * 11008 + 2 * wide)
    blocks = 2 * (3 * wide * wide + 4 * wide)  # three biases and a norm
    matrices = 3 * wide * wide + 4 * wide  # two biases, and two norms
    assert head.kind == "regressive" and head.shape.num_layers == 2
    assert head.shape.parameters == layers + blocks + matrices
    later = {op.name: op for op in forward_ops(head.shape, 1, 1, 0, layers=(2, 2))}
    assert later.keys() == {"step_projection", "lm_head"}
    assert later["step_projection"].total.weight_bytes == 2 * (3 + 2) * wide * wide


def test_trigrams_and_wide_matrices_of_chimera_are_priced(tmp_path: Path) -> None:
    """For Vicuna 7B by hand: a layer, a block on three embeddings, a matrix on two states."""
    vicuna = LLAMA_8B | {"intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
    head, wide = read(tmp_path, vicuna | {"chimera_num_heads": 4}, vicuna), 4096
    layer = 4 * wide * wide + 3 * wide * 11008 + 2 * wide
    trigram = 3 * wide * (3 * wide + 1) + 3 * wide * wide
    assert head.kind == "recurrent" and head.shape.num_layers == 1
    assert head.shape.parameters == layer + trigram + 2 * 32000 * wide  # of one step's matrix


def test_matrices_of_a_tandem_are_priced_along_the_text(tmp_path: Path) -> None:
    """A model of two layers, half as wide as Llama 8B, by hand: its own passes read no matrices."""
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32}
    config = LLAMA_8B | sizes | {"num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": 2}
    read_ = {"tandem_layers": [8, 24], "target_hidden_size": 4096}
    head = read(tmp_path, config | read_)
    layers = 2 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048)
    matrices, tables = 2 * 2048 * 4096, 2 * 128256 * 2048
    assert head.kind == "recurrent" and head.feature_layers == (8, 24)
    assert head.shape.parameters == layers + matrices + tables + 2048
    first, later = (forward_ops(x, 1, 1, 0) for x in (head.shape, head.shape.on_own_states))
    assert {op.name for op in first} - {op.name for op in later} == {"feature_projection"}


def test_speculators_say_the_same(tmp_path: Path) -> None:
    plain = read(tmp_path / "plain", EAGLE3)
    inner = {k: v for k, v in EAGLE3.items() if k not in ("architectures", "draft_vocab_size")}
    stated = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32000,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": [2, 16, 29],
        "transformer_layer_config": inner,
    }
    head = read(tmp_path / "speculators", stated)
    assert head.shape.parameters == plain.shape.parameters
    assert head.feature_layers == plain.feature_layers
    four = read(tmp_path / "four", stated | {"eagle_aux_hidden_state_layer_ids": [2, 16, 29, 31]})
    assert four.shape.parameters - head.shape.parameters == 4096 * 4096
    normed = read(tmp_path / "normed", stated | {"norm_before_fc": True})
    assert normed.shape.parameters - head.shape.parameters == 3 * 4096


def test_layers_of_an_eagle_config_count_from_their_outputs(tmp_path: Path) -> None:
    """SGLang reads the outputs of these layers: [1, 46, 90] is (2, N // 2, N - 3) of 94 layers."""
    given = {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}
    assert read(tmp_path, EAGLE3 | {"eagle_config": given}).feature_layers == (2, 16, 29)


def test_a_block_drafter_borrows_embedding_and_head(tmp_path: Path) -> None:
    """z-lab/dflash: five layers of Qwen3 with norms of queries and keys, one joining matrix."""
    drafter = read(tmp_path, DFLASH, QWEN3_8B)
    hidden, inner, key = 4096, 12288, 1024
    layer = hidden * (2 * hidden + 2 * key) + 3 * hidden * inner + 2 * hidden + 2 * 128
    assert drafter.shape.parameters == 5 * layer + 5 * hidden * hidden + 2 * hidden
    assert (drafter.kind, drafter.block, drafter.mask_token) == ("block", 15, 151669)
    assert drafter.feature_layers == (2, 10, 18, 26, 34)
    passed = forward_cost(drafter.shape, 1, 16, 100, logit_rows=15)
    head = 2 * 151936 * hidden  # the target's, read all the same
    assert passed.weight_bytes == drafter.shape.weight_bytes + head - 2 * (
        5 * (2 * hidden + 2 * 128) + 2 * hidden
    )


def test_layers_are_spread_as_the_reference_spreads_them() -> None:
    assert spread_layers(36, 5) == (1, 9, 17, 25, 33)
    assert spread_layers(28, 1) == (14,)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (EAGLE3 | {"architectures": ["HydraModel"]}, "HydraModel"),
        (EAGLE3 | {"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "Eagle3DeepseekV2"),
        ({"hydra_num_heads": 4, "hydra_head_arch": "eagle-attn"}, "hydra_head_arch 'eagle-attn'"),
        ({"speculators_model_type": "dflash2", "transformer_layer_config": EAGLE3}, "dflash2"),
        (EAGLE3 | {"rope_scaling": {"type": "dynamic"}}, "rotary scaling 'dynamic'"),
        (EAGLE3 | {"partial_rotary_factor": 0.5}, "a part of each head"),
        (EAGLE3 | {"eagle_config": {"parallel_draft_step": 4}}, "parallel_draft_step"),
        (EAGLE3 | {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
        (DFLASH | {"architectures": ["DSparkDraftModel"]}, "DSparkDraftModel"),
        (DFLASH | {"markov_rank": 256}, "markov_rank"),
        (DFLASH | {"dflash_config": {"projector_type": "dspark"}}, "projector_type 'dspark'"),
    ],
)
def test_other_forms_are_refused_by_name(tmp_path: Path, config: dict[str, Any], says: str) -> None:
    with pytest.raises(MissingCapabilityError, match=says):
        read(tmp_path, config)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (EAGLE3 | {"vocab_size": 151936}, "vocabulary has 151936"),
        (EAGLE3 | {"target_hidden_size": 5120}, "of size 5120, the target's hidden size is 4096"),
        (EAGLE3 | {"hidden_size": 8192}, "of size 8192, the target's hidden size is 4096"),
        (DFLASH | {"vocab_size": 128256, "hidden_size": 2048}, "of size 2048"),
        (EAGLE3 | {"draft_vocab_size": 200000}, "larger than the target's"),
        (EAGLE3 | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [40]}}, "layer 41"),
        (EAGLE3 | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": "2"}}, "no list of layers"),
        (DFLASH | {"vocab_size": 128256, "block_size": 1}, "less than two"),
        (DFLASH | {"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id"),
    ],
)
def test_drafters_of_other_targets_are_refused(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        read(tmp_path, config)


def test_a_head_may_be_narrower_than_the_target_that_it_states(tmp_path: Path) -> None:
    head = read(tmp_path, EAGLE3 | {"hidden_size": 2048, "target_hidden_size": 4096})
    assert head.shape.feature_width == 3 * 4096 and head.shape.owns_embedding


def test_stored_weights_are_those_described(tmp_path: Path) -> None:
    small = {"hidden_size": 8, "intermediate_size": 12, "vocab_size": 28, "num_attention_heads": 2}
    small |= {"num_key_value_heads": 1}
    target = LLAMA_8B | small
    config = EAGLE3 | small | {"draft_vocab_size": 20}
    shapes = {
        "fc.weight": (8, 24),
        "midlayer.self_attn.q_proj.weight": (8, 16),
        "midlayer.self_attn.k_proj.weight": (4, 16),
        "midlayer.self_attn.v_proj.weight": (4, 16),
        "midlayer.self_attn.o_proj.weight": (8, 8),
        "midlayer.mlp.gate_proj.weight": (12, 8),
        "midlayer.mlp.up_proj.weight": (12, 8),
        "midlayer.mlp.down_proj.weight": (8, 12),
        "midlayer.hidden_norm.weight": (8,),
        "midlayer.input_layernorm.weight": (8,),
        "midlayer.post_attention_layernorm.weight": (8,),
        "norm.weight": (8,),
        "lm_head.weight": (20, 8),
        "embed_tokens.weight": (28, 8),
    }
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    stated = read(tmp_path, config, target)
    save_file(tensors | {"d2t": np.zeros(20, np.int64)}, tmp_path / "model.safetensors")
    stored = read(tmp_path, config, target)
    assert stored.shape.parameters == stated.shape.parameters
    assert stored.shape.digest != stated.shape.digest
    del tensors["fc.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="the weights hold"):
        read(tmp_path, config, target)
