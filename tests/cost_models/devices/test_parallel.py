"""Splits of a model over devices: which exist, what they cost, which are worth having."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.parallel import (
    Split,
    pareto_front,
    price_split,
    search_splits,
    splits,
)
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import InfeasibleError
from tests.cost_models.models.public_shapes import shape

LLAMA = shape("llama-3-8b", "bfloat16")
DEEPSEEK = {
    # deepseek-ai/DeepSeek-V3, config.json
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def device(name: str) -> AnalyticDevice:
    one = load_device(name, "sglang")
    assert isinstance(one, AnalyticDevice)
    return one


def test_splits_use_all_devices_and_none_that_cannot_be() -> None:
    """No tensor parallelism that leaves heads over, across nodes, or without links."""
    for count, longest in ((8, 8), (16, 8)):
        for split in splits(LLAMA, device("h100-sxm"), count):
            assert split.devices == count and split.tensor <= longest
            assert LLAMA.layers[0].attention.num_heads % split.tensor == 0
            assert not split.attention_copies  # no experts to spread
    assert max(one.tensor for one in splits(LLAMA, device("gb200"), 16)) == 16  # one domain
    assert {one.tensor for one in splits(LLAMA, device("h100-sxm"), 3)} == {1}
    alone = device("cpu-generic")
    assert {one.tensor for one in splits(LLAMA, alone, 2)} == {1}


def test_replicas_and_stages_divide_requests() -> None:
    """Two replicas serve twice the requests in the same time; stages do so, and hand on."""
    one = device("h100-sxm")
    single = price_split(Split(2), LLAMA, one, 16, 1000)
    double = price_split(Split(2, replicas=2), LLAMA, one, 32, 1000)
    stages = price_split(Split(2, pipeline=2), LLAMA, one, 32, 1000)
    assert single and double and stages
    assert double.tpot == pytest.approx(single.tpot)
    assert double.per_device == pytest.approx(single.per_device)
    hops = 2 * (one.seconds_per_collective + 16 * 4096 * 2 / one.link_bandwidth)
    assert stages.tpot == pytest.approx(single.tpot + hops)
    assert stages.memory < single.memory
    across = price_split(Split(8, pipeline=2), LLAMA, one, 32, 1000)
    within = price_split(Split(4, pipeline=2), LLAMA, one, 32, 1000)
    assert across and within  # between nodes a hop takes ten microseconds and more
    assert price_split(Split(1, pipeline=8), LLAMA, one, 4, 1000) is None  # stages without work
    assert price_split(Split(1), LLAMA, one, 100_000, 1000) is None  # no memory


def test_deepseek_is_planned_with_copies_of_attention() -> None:
    """Tensor parallelism is best for few users, DP attention and EP for many; 8 x H200 hold it."""
    model = ModelShape.from_config(DEEPSEEK)
    prices = search_splits(model, device("h200"), 8, (1, 16, 256, 1024), 1500)
    front = pareto_front(prices)
    assert str(front[0].split) == "TP 8" and front[0].requests == 1
    assert str(front[-1].split) == "DP attention 8, EP 8" and front[-1].requests == 1024
    for one in prices:  # nothing beats the front
        assert any(
            better.per_user >= one.per_user and better.per_device >= one.per_device
            for better in front
        )
    copies, shared = (
        price_split(Split(8, attention_copies=copied), model, device("h200"), 256, 8000)
        for copied in (True, False)
    )
    assert copies and shared is None  # eight copies of every latent do not fit


def test_the_command_prints_the_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what `optimize --show all` says of another split than TP over all."""
    from specplan.cli.parallel import parallel, parallel_document
    from specplan.planner.answer.splits import better_split
    from specplan.problems import as_problem

    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(DEEPSEEK))
    problem = {"schema_version": 1, "models": {"target": {"path": "target"}}}
    problem |= {"device": "8xh200", "backend": "sglang", "sources": []}
    problem |= {"workload": {"batch_sizes": [64], "prompt_tokens": 1000, "output_tokens": 200}}
    path = tmp_path / "problem.yaml"
    path.write_text(yaml.safe_dump(problem))
    document = parallel_document(path)
    assert document["compared"] == len(document["all"]) > len(document["front"]) > 1
    assert document["drafted_front"] == []  # nothing drafts there
    parallel(path)
    assert "DP attention 8, EP 8" in capsys.readouterr().out
    assert better_split(as_problem(path)) is None  # at 64 requests one group is best
    many = problem["workload"] | {"batch_sizes": [512]}
    path.write_text(yaml.safe_dump(problem | {"workload": many}))
    rows = {r["split"]: r for r in parallel_document(path)["all"] if r["requests"] == 512}
    copies, together = rows["DP attention 8, EP 8"], rows["TP 8"]
    more = copies["per_device"] / together["per_device"]
    better = better_split(as_problem(path))
    assert better is not None and f"DP attention 8, EP 8 instead of TP 8: {more:.2g}x" in better
    path.write_text(yaml.safe_dump(problem | {"device": "2xh200"}))
    assert better_split(as_problem(path)) is None
    with pytest.raises(InfeasibleError, match="no split"):
        parallel_document(path)


def test_with_a_drafter_each_group_has_its_own_best_plan(tmp_path: Path) -> None:
    """What `optimize` says of the devices of a group and its part of the requests."""
    from specplan import optimize
    from specplan.cli.parallel import parallel_document

    sizes = {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336}
    small = {"num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192}
    for name, own in (("target", sizes), ("draft", small)):
        config = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8}
        config |= {"vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config | own))
    drafts = [{"name": "draft", "path": "draft"}]
    problem = {"schema_version": 1, "models": {"target": {"path": "target"}, "drafts": drafts}}
    problem |= {"device": "8xh100-sxm", "backend": "vllm", "acceptance": {"draft": 0.8}}
    load = {"batch_sizes": [64], "prompt_tokens": 1024, "output_tokens": 512}
    path = tmp_path / "problem.yaml"
    path.write_text(yaml.safe_dump(problem | {"workload": load}))
    document = parallel_document(path)
    drafted, plain = document["drafted_front"], document["front"]
    assert max(row["per_user"] for row in drafted) > 1.2 * max(row["per_user"] for row in plain)
    row = next(row for row in drafted if row["tensor"] < 8)
    part = load | {"batch_sizes": [row["requests"] // row["replicas"]]}
    group = problem | {"device": f"{row['tensor']}xh100-sxm", "workload": part, "objective": "tpot"}
    path.write_text(yaml.safe_dump(group))
    alone = optimize(path)
    assert row["plan"] == alone.search.chosen.words
    assert row["tpot"] == pytest.approx(alone.estimates[0].seconds_per_token.median)
    assert row["per_device"] == pytest.approx(row["requests"] / row["tpot"] / 8)
