"""Tiny pairs of models in float64 whose draft model is often, not always, right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import transformers
from torch import Tensor

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.session import Program
from specplan.ir.plan import Plan
from specplan.measure.device.probes import plain_plan
from specplan.passes.pipeline import PASSES, run_passes
from specplan.passes.renumber import renumber
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request

POSITIONS = 160


def save_pair(
    folder: Path,
    vocabulary: int = 61,
    *,
    scale: float = 0.3,
    layers: int = 3,
    head_dim: int = 8,
    sureness: float = 1.0,
) -> None:
    """Save `target` and `draft`: the draft is all layers of the target but the last.

    `sureness` multiplies the logits of both: which token is best stays.
    """
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=POSITIONS,
        initializer_range=scale,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    target = transformers.LlamaForCausalLM(config)
    target.lm_head.weight.data *= sureness
    target.save_pretrained(folder / "target")
    save_shorter(folder, "draft", layers - 1)


def save_shorter(folder: Path, name: str, layers: int) -> None:
    """Save the target's first layers as a model of their own."""
    target = transformers.LlamaForCausalLM.from_pretrained(folder / "target")
    small: Any = transformers.LlamaConfig(
        **{**target.config.to_dict(), "num_hidden_layers": layers}
    )
    shorter = transformers.LlamaForCausalLM(small)
    shorter.load_state_dict(target.state_dict(), strict=False)
    shorter.save_pretrained(folder / name)


def load_pair(folder: Path, dtype: str = "float64", device: str = "cpu") -> dict[str, CausalModel]:
    """The pair by the names that plans give them."""
    return {
        name: load_model(folder / name, dtype=dtype, device=device) for name in ("target", "draft")
    }


def run(
    plan: Plan, models: dict[str, CausalModel], requests: Sequence[Request]
) -> list[tuple[int, ...]]:
    """Emitted tokens per request, all requests in one batch."""
    executable = EagerBackend().compile(plan, models)
    return [item.tokens for item in generate(executable, requests).completions]


def in_batches(
    plan: Plan, models: dict[str, CausalModel], requests: Sequence[Request], batch: int
) -> list[tuple[int, ...]]:
    """`run` over consecutive groups of `batch` requests."""
    groups = [requests[i : i + batch] for i in range(0, len(requests), batch)]
    return [tokens for group in groups for tokens in run(plan, models, group)]


def counting(ran: Counter[int | None]) -> Callable[..., Program]:
    """Runs graphs eagerly, and counts the calls of each form of a round."""

    def compiled(graph: RoundGraph, *_: Any) -> Program:
        def program(*tensors: Tensor) -> Tensor:
            ran[graph.outcome] += 1
            report: Tensor = graph(*tensors)
            return report

        return program

    return compiled


def plainly(models: Mapping[str, Any], requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """What the target says alone, greedily; what it said before is remembered.

    All requests run in one batch: that they do not matter to each other is asserted of plain
    decoding as of every plan, in `test_every_plan.py`. Half precision rounds otherwise by batch.
    """
    target = models["target"]
    known = _DECODED.setdefault(target, {})
    new = [one for one in dict.fromkeys(requests) if one not in known]
    if new:
        known.update(zip(new, run(plain(), {"target": target}, new), strict=True))
    return [known[one] for one in requests]


_DECODED: WeakKeyDictionary[CausalModel, dict[Request, tuple[int, ...]]] = WeakKeyDictionary()


def plain(greedy: bool = True) -> Plan:
    """Autoregressive decoding."""
    return plain_plan(greedy)


def plans_after_passes(plan: Plan) -> list[tuple[str, Plan]]:
    """(pass, plan) after each pass that changed more than names."""
    stages: list[tuple[str, Plan]] = []
    last = renumber(plan)

    def watch(name: str, after: Plan, changed: bool, _: float) -> None:
        nonlocal last
        if changed and renumber(after) != last:
            last = renumber(after)
            stages.append((name, after))

    run_passes(plan, PASSES, watch=watch)
    return stages
