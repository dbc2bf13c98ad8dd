"""Tables with the columns of aiconfigurator-core, filled by a law instead of a GPU."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from specplan.cost_models.devices.silicon.package import DataSheet, Table

SHEET = DataSheet(
    memory_bandwidth=3.35e12,
    memory_bytes=80 * 2**30,
    link_bandwidth=450e9,
    peaks={"bfloat16": 989e12, "fp8": 1978e12, "int8": 1978e12},
)


def table(seconds: Any, **columns: Any) -> Table:
    """A table of equally long columns."""
    return Table(
        {name: np.asarray(values) for name, values in columns.items()},
        np.asarray(seconds, dtype=np.float64),
        "test_system/family/stack/1.0/table.parquet",
    )


def rows(**choices: Any) -> dict[str, np.ndarray]:
    """All combinations of the choices, as columns."""
    combinations = list(product(*choices.values()))
    return {
        name: np.array([combination[i] for combination in combinations])
        for i, name in enumerate(choices)
    }


def product_seconds(m: Any, n: Any, k: Any, width: float = 2.0, peak: float = 989e12) -> Any:
    """A GPU that reaches 70 % of its peak and 85 % of its bandwidth, with 3 us per kernel."""
    moved = width * (n * k + m * k) + 2.0 * m * n
    return 3e-6 + np.hypot(2.0 * m * n * k / (0.7 * peak), moved / (0.85 * 3.35e12))


def attention_seconds(batch: Any, heads: Any, kv_heads: Any, width: Any, n: Any, past: Any) -> Any:
    """Keys and values at 80 % of the bandwidth, products at half of the peak, 8 us."""
    flops = 4.0 * batch * heads * width * n * (past + (n + 1) / 2.0)
    moved = 4.0 * batch * width * (kv_heads * (past + n) + heads * n)
    return 8e-6 + np.hypot(flops / (0.5 * 989e12), moved / (0.8 * 3.35e12))


def products_table() -> Table:
    """Matrix products in two formats."""
    columns = rows(
        gemm_dtype=["bfloat16", "fp8"],
        m=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        n=[64, 512, 1024, 2048, 4096, 8192, 16384],
        k=[64, 512, 1024, 2048, 4096, 8192, 16384],
    )
    narrow = columns["gemm_dtype"] == "fp8"
    m, n, k = columns["m"], columns["n"], columns["k"]
    seconds = np.where(narrow, product_seconds(m, n, k, 1.0, 1978e12), product_seconds(m, n, k))
    return table(seconds, **columns)


def decode_table() -> Table:
    """Attention of single tokens."""
    columns = rows(
        batch_size=[1, 2, 4, 8, 16, 32],
        isl=[1],
        num_heads=[8, 16, 32, 64],
        num_key_value_heads=[1, 2, 4, 8],
        head_dim=[128],
        attn_dtype=["bfloat16"],
        kv_cache_dtype=["bfloat16"],
        step=[1, 15, 127, 1023, 8191, 32767],
        window_size=[0],
    )
    return _attention(columns)


def prompt_table() -> Table:
    """Attention of whole prompts; 0 KV heads stand for as many as query heads."""
    columns = rows(
        batch_size=[1, 2, 4, 8],
        isl=[1, 16, 128, 512, 2048, 8192],
        num_heads=[8, 16, 32],
        num_key_value_heads=[0, 1, 2, 4, 8],
        head_dim=[128],
        attn_dtype=["bfloat16"],
        kv_cache_dtype=["bfloat16"],
        step=[0],
    )
    return _attention(columns)


def _attention(columns: dict[str, np.ndarray]) -> Table:
    kv_heads = columns["num_key_value_heads"]
    seconds = attention_seconds(
        columns["batch_size"],
        columns["num_heads"],
        np.where(kv_heads == 0, columns["num_heads"], kv_heads),
        columns["head_dim"],
        columns["isl"],
        columns["step"],
    )
    return table(seconds, **columns)


def experts_table() -> Table:
    """Two families of experts, routed in two ways."""
    parts = []
    for hidden, width, active, experts in ((4096, 14336, 2, 8), (2048, 768, 8, 128)):
        columns = rows(
            moe_dtype=["bfloat16"],
            num_tokens=[1, 2, 4, 8, 16, 64, 256, 1024, 4096],
            hidden_size=[hidden],
            inter_size=[width],
            topk=[active],
            num_experts=[experts],
            moe_tp_size=[1, 2],
            moe_ep_size=[1],
            distribution=["balanced", "power_law_1.01"],
        )
        share = width / columns["moe_tp_size"]
        seconds = expert_seconds(columns["num_tokens"], hidden, share, active, experts)
        slower = np.where(columns["distribution"] == "balanced", 2.0, 1.0)
        parts.append(table(seconds * slower, **columns))
    names = parts[0].columns
    return table(
        np.concatenate([part.seconds for part in parts]),
        **{name: np.concatenate([part.columns[name] for part in parts]) for name in names},
    )


def expert_seconds(tokens: Any, hidden: int, width: Any, active: int, experts: int) -> Any:
    """Weights of the expected distinct experts at 75 % of the bandwidth, 15 us."""
    read = experts * (1.0 - (1.0 - active / experts) ** tokens)
    matrices = 3.0 * hidden * width
    flops = 2.0 * tokens * active * matrices
    return 15e-6 + np.hypot(flops / (0.6 * 989e12), 2.0 * matrices * read / (0.75 * 3.35e12))


def reduction_table() -> Table:
    """All-reduce on 2 and 8 devices, captured in graphs and launched by the host."""
    columns = rows(
        op_name=["all_reduce"],
        kernel_source=["vLLM_custom_graph", "vLLM_custom_eager"],
        num_gpus=[2, 8],
        message_size=[2**i for i in range(7, 26)],
    )
    devices = columns["num_gpus"]
    moved = 2.0 * (devices - 1) / devices * 2.0 * columns["message_size"]
    eager = columns["kernel_source"] == "vLLM_custom_eager"
    return table(np.where(eager, 40e-6, 5e-6) + moved / (0.7 * 450e9), **columns)
