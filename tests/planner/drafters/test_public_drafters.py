"""Public targets and drafters, from config.json alone, against what was published of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from specplan import optimize
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile

HEAD_70B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "torch_dtype": "bfloat16",
}


def problem(folder: Path, config: Path, rates: list[list[float]], name: str) -> dict[str, Any]:
    """A target by its public config, one drafter with given rates, planned for and not run."""
    shutil.copytree(config, folder / "target")
    key = AcceptanceKey(name)
    AcceptanceProfile.from_hazards(rates, key=key, trials=1000).save(folder / "rates.json")
    return {
        "schema_version": 1,
        "models": {"target": {"path": str(folder / "target")}},
        "backend": "none",
        "acceptance": {name: str(folder / "rates.json")},
    }


@pytest.mark.shared
def test_one_token_more_of_deepseek_v3(shared: Path, tmp_path: Path) -> None:
    """arXiv 2412.19437 section 5.4.3: 85 to 90 % accepted, 1.8 times the tokens per second.

    That is of decoding alone; the time of a request has its prompt in it too.
    """
    config = shared / "data/model_configs/deepseek-ai--DeepSeek-V3"
    value = problem(tmp_path, config, [[0.875]], "mtp") | {
        "sources": ["mtp"],
        "device": "8xh200",
        "workload": {"batch_sizes": [128], "prompt_tokens": 1024, "output_tokens": 1024},
    }
    optimized = optimize(value)
    assert optimized.search.chosen.drafter == Model("mtp")
    one = next(c for c in optimized.candidates if c.words.startswith("chain of 1 "))
    plain, drafting = (c.estimate.seconds_per_token for c in (optimized.search.plain, one))
    assert plain.median[0] / drafting.median[0] == pytest.approx(1.8, rel=0.1)


@pytest.mark.shared
def test_a_head_is_chosen_for_llama_70b_from_configs_alone(shared: Path, tmp_path: Path) -> None:
    config = shared / "data/model_configs/meta-llama--Meta-Llama-3.1-70B"
    (tmp_path / "head").mkdir()
    (tmp_path / "head/config.json").write_text(json.dumps(HEAD_70B), encoding="utf-8")
    value = problem(tmp_path, config, [[0.75], [0.72], [0.7]], "head") | {
        "sources": [],
        "device": "8xh100-sxm",
        "workload": {"batch_sizes": [1, 8], "prompt_tokens": 512, "output_tokens": 256},
    }
    value["models"]["drafts"] = [{"name": "head", "path": str(tmp_path / "head")}]
    assert optimize(value).search.chosen.drafter == Model("head")
    assert optimize(value | {"backend": "eager"}).search.chosen.drafter == Model("head")
