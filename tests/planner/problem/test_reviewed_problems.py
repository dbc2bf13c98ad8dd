"""Problems of a review: each plans, or is refused with the one reason that is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specplan import optimize
from specplan.ir.errors import SpecplanError

REFUSED = {
    # models that are not priced, or no decoders
    "deepseek-v3.2": "'deepseek_v32' .sparse attention: index_topk. cannot be priced",
    "eagle3-70b": "class LlamaForCausalLMEagle3",
    "eagle3-70b-yuhuili": "class LlamaForCausalLMEagle3",
    "gemma-3n-e4b": "'gemma3n' .an unknown architecture. cannot be priced",
    "jamba-1.5-mini": "recurrent state: jamba",
    "nemotron-h-8b": "recurrent state: nemotron_h",
    "qwen3.5-27b": "recurrent state: linear_attention",
    "rwkv7": "recurrent state: rwkv7",
    "t5": "'t5' .an encoder-decoder. cannot be priced",
    "qwen3-8b-eetq": r"quantised weights \(eetq\)",
    "qwen3-8b-hqq": r"quantised weights \(hqq\)",
    # their config.json was abridged, or the file is no model
    "falcon-h1": "lacks the key 'mamba_n_heads'",
    "phi-3.5-moe": "lacks the key 'num_attention_heads'",
    "gg": "not a whole GGUF file",
    "hub": "no folder .* nor a model of that id in the Hugging Face cache",
    # devices
    "gemma-3-1b-it": "4 heads cannot be split evenly over 8 devices",
    "phi-4": "10 KV heads cannot be split evenly over 8 devices",
    "x9b": "64 heads cannot be split evenly over 3 devices",
    "x9": "memory needed reaches .*; its largest part: weights of target",
    "x12": "no peak for bfloat16. Set `dtype: float16`",
    "x14": 'unknown device "H100". Did you mean "h100-pcie" or "h100-sxm"',
    "x15": 'unknown device "a100". Did you mean',
    "wf": '"fp8" is not a choice',
}
"""By problem what the error says; every other one plans."""
NO_PROBLEMS = {"d", "mtp"}
"""Files of stated acceptance that lie beside them."""
NEEDS_TABLES = {"s"}
"""Priced by the kernel tables of a package that may not be installed."""


@pytest.mark.shared
def test_each_plans_or_says_why_not(shared: Path) -> None:
    folder = shared / "reviews" / "scripts" / "j2"
    problems = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if not problems:
        pytest.skip(f"not there: {folder}")
    answers = {}
    for name in problems.keys() - NO_PROBLEMS - NEEDS_TABLES:
        try:
            optimize(problems[name])
        except SpecplanError as error:
            answers[name] = " ".join(str(error).split())
    assert answers.keys() == REFUSED.keys()
    for name, reason in REFUSED.items():
        assert re.search(reason, answers[name]), (name, answers[name])
