"""The form of a drafter's checkpoint, which decides how an engine is told to load it.

Engines go by the same keys of `config.json`: vLLM's `config/speculative.py` and
`v1/worker/gpu/spec_decode/utils.py` (`pard_token`, `ptd_token_id`), SGLang's `speculative_hook.py`.
For EAGLE-1 heads vLLM's registry has `EagleLlamaForCausalLM`, SGLang's `LlamaForCausalLMEagle`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMS: dict[str, str] = {
    "model": "a language model",
    "pard": "a language model that drafts in parallel (PARD, pard_token)",
    "eagle1": "an EAGLE-1 or EAGLE-2 head",
    "eagle": "an EAGLE-3 head",
    "p_eagle": "an EAGLE-3 head that drafts in parallel (P-EAGLE, ptd_token_id)",
    "dflash": "a DFlash block drafter",
    "dflash2": "a DFlash2 block drafter",
    "dspark": "a DSpark block drafter",
    "chimera": "a Chimera head",
    "tandem": "a small model that attends to the target's states (Tandem)",
    "clover": "a Clover head",
    "fspad": "an EAGLE head with feature sampling (FSPAD)",
    "amphista": "Amphista heads",
    "layers": "layers beside a target's last one (multi-token prediction, n_future_tokens)",
}
"""Forms of checkpoints, in words."""
_KEYS = {
    "n_future_tokens": "layers",
    "chimera_num_heads": "chimera",
    "tandem_layers": "tandem",
    "clover": "clover",
    "amphista_num_heads": "amphista",
    "feature_sampling": "fspad",
}
"""Forms by a key that only they have."""
SPECULATORS = "/speculators"
"""What ends the form of a checkpoint in the layout of the `speculators` library."""
SGLANG = "/sglang"
"""The same of an EAGLE-1 head whose class has SGLang's name."""


def read_config(folder: str | Path) -> Mapping[str, Any]:
    """The `config.json` of a checkpoint; empty where there is none, as for a GGUF file."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, Mapping) else {}


def form_of(config: Mapping[str, Any]) -> str:
    """The form of a drafter, such as `eagle` or `dflash/speculators`; "" for an empty config."""
    if not config:
        return ""
    stated = str(config.get("speculators_model_type", ""))
    inner = config.get("dflash_config") or {}
    names = " ".join([stated, *map(str, config.get("architectures") or ())]).lower()
    ending = SPECULATORS if stated else ""
    if "dspark" in names or config.get("markov_rank") or inner.get("markov_rank"):
        return f"dspark{ending}"
    if "dflash" in names or inner:
        second = "dflash2" in names or inner.get("projector_type") == "dflash2"
        return f"dflash{'2' * second}{ending}"
    if "eagle" in names:
        parallel = "ptd_token_id" in config or "peagle" in names
        if parallel or "eagle3" in names:
            return f"{'p_eagle' if parallel else 'eagle'}{ending}"
        return f"eagle1{ending or SGLANG * names.endswith('eagle')}"
    for key, form in _KEYS.items():
        if key in config:
            return form
    return "pard" if "pard_token" in config else "model"


def can_share(config: Mapping[str, Any], devices: int) -> bool:
    """Whether as many devices can share the layers of a model: whole attention heads on each."""
    inner = config.get("transformer_layer_config") or config
    heads = inner.get("num_attention_heads", devices)
    return isinstance(heads, int) and heads % devices == 0


def words_of(form: str) -> str:
    """A form in words."""
    name, _, layout = form.partition("/")
    return FORMS[name] + (f" in the layout of {layout}" if layout else "")
