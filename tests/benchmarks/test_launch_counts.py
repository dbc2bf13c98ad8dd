"""The launches per layer that rounds in eager PyTorch are priced by, counted on a tiny model."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

NO_KERNELS = {
    "view", "_unsafe_view", "transpose", "unsqueeze", "slice", "expand", "reshape", "t", "dropout",
    "select", "alias", "detach", "split", "chunk", "permute", "squeeze",
}  # fmt: skip


class Counting(TorchDispatchMode):
    """Counts the operations that reach a backend."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[func.__name__.split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def kernels(layers: int, attention: str) -> int:
    """Kernels of one decoding step of a Llama with so many layers."""
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=48, vocab_size=50, attn_implementation=attention,
    )  # fmt: skip
    model = LlamaForCausalLM(config).half().eval()
    cache = DynamicCache(config=config)
    with torch.inference_mode():
        model(torch.zeros(1, 4, dtype=torch.long), past_key_values=cache)
        with Counting() as counting:
            model(torch.zeros(1, 3, dtype=torch.long), past_key_values=cache)
    return sum(count for name, count in counting.counts.items() if name not in NO_KERNELS)


@pytest.mark.parametrize(("attention", "added"), [("sdpa", 0), ("eager", 6)])
def test_a_layer_launches_what_the_rounds_are_priced_by(
    repository: Path, monkeypatch: pytest.MonkeyPatch, attention: str, added: int
) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    methods = importlib.import_module("published_rows.spec_bench_methods")
    per_layer = (kernels(4, attention) - kernels(2, attention)) / 2
    # transformers 4.37, which Spec-Bench pins, gathers rotary tables in every layer: two more
    assert per_layer + 2 == methods.LAYER + added
