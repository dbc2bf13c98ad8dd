"""A whole round of a Llama-8B-shaped target and a 1B-shaped draft: predicted, measured, its floor.

    python benchmarks/gpu_round.py --out round.json

Weights are random, so what is accepted says nothing; the time of a round does not depend on it. The
floor is the bytes of all forwards over the bandwidth of a measured copy. The round runs as a graph
of tensors, eagerly; as the flat program that `torch.export` makes of it; and that one captured in a
CUDA graph; each with tensor ops alone, and with our kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from gpu_timing import captured, copy_bandwidth
from torch import Tensor

from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import KEYS_PLACE
from specplan.backends.static.session import StaticSession
from specplan.cost_models.clock import Clock
from specplan.cost_models.pricing import RoundPrice, price_round, read_round, round_cost
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.cost_models.timing.device import load_device
from specplan.ir.files import write_json_atomic
from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan
from specplan.runtime.attention import ATTENTION_NAME
from specplan.runtime.models import CausalModel, assert_attention
from specplan.runtime.requests import Request

TARGET: dict[str, Any] = dict(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=14336, vocab_size=128256, max_position_embeddings=131072,
)  # fmt: skip
DRAFT: dict[str, Any] = dict(
    hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=8192, vocab_size=128256, max_position_embeddings=131072,
    tie_word_embeddings=True,
)  # fmt: skip
MEASURED = ("eager_seconds", "exported_seconds", "captured_seconds")
SHEETS = {
    "H100 80GB HBM3": "h100-sxm", "H100 PCIe": "h100-pcie", "H200": "h200", "B200": "b200",
    "A100-SXM4-80GB": "a100-sxm-80gb", "A100-SXM4-40GB": "a100-sxm-40gb", "L40S": "l40s",
    "GeForce RTX 4090": "rtx-4090",
}  # fmt: skip
"""Data sheets by what CUDA calls the device."""


def chain(length: int) -> Plan:
    """The draft model drafts a chain, the target verifies it greedily."""
    return parse_plan(
        f"""plan chain
model target
model draft
state @kv = cache target
state @dkv = cache draft
round decode {{
  %t0 = root
  %c = repeat {length} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward draft %f cache=@dkv pending=2
    %n = grow %t at=%f rows=%q
    yield %n
  }}
  %l = forward target %c cache=@kv pending=1
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
  commit @dkv %e
}}
"""
    )


def random_model(
    sizes: Mapping[str, Any], name: str, device: torch.device, dtype: torch.dtype
) -> CausalModel:
    """A Llama of these sizes with random weights."""
    import transformers

    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.LlamaConfig(**sizes), dtype=dtype, attn_implementation=ATTENTION_NAME
        )
    model.requires_grad_(False).eval()
    assert_attention(model)
    return CausalModel(model, name=name, digest=name)


def begun(
    plan: Plan,
    models: Mapping[str, CausalModel],
    batch: int,
    context: int,
    fused_on: Collection[str] = (),
) -> tuple[StaticExecutable, StaticSession]:
    """A batch whose prompts have run; on devices `fused_on` its rounds call our kernels."""
    tokens = torch.randint(
        models["target"].vocab_size, (batch, context), generator=torch.Generator().manual_seed(0)
    )
    requests = [Request(prompt_tokens=tuple(row), max_new_tokens=64) for row in tokens.tolist()]
    executable = StaticExecutable(plan, models, fused_on=fused_on)
    session = executable.start(requests)
    session.prefill()
    return executable, session


class FixedRound:
    """One round on tensors of its own, again and again from the same state.

    Args:
        executable: whose only round it is.
        session: a batch whose prompts have run.
    """

    def __init__(self, executable: StaticExecutable, session: StaticSession) -> None:
        name = executable.lowered.rounds[0].name
        self.graph: RoundGraph = executable.graph(name, session.sampling)
        slots = session.batch.text.shape[1] - 1
        used = max(session.batch.lengths) + executable.speculative
        self.eager = session._tensors(self.graph, used).flat()
        # A captured round attends to all slots; which of them count is the mask's affair.
        self.fixed = list(self.eager)
        self.fixed[KEYS_PLACE] = torch.arange(slots, device=self.eager[0].device)

    def exported(self) -> Callable[..., Tensor]:
        """The round as a flat program, whose constants are tensors on the device."""
        program = torch.export.export(self.graph, tuple(self.fixed), strict=False)
        return program.module()


def floor_and_price(
    plan: Plan, sizes: Mapping[str, Mapping[str, Any]], batch: int, context: int, name: str
) -> tuple[float, float | None]:
    """Bytes of a round's forwards, and its predicted seconds where the device has a data sheet."""
    shapes = {
        model: ModelShape.from_config(
            {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **given},
            name=model,
            dtype="bfloat16",
        )
        for model, given in sizes.items()
    }
    demands = read_round(plan, plan.rounds[0])
    assert not hasattr(demands, "reason"), str(demands)
    sheet = next((sheet for word, sheet in SHEETS.items() if word in name), None)
    clock = Clock(load_device(sheet or "h100-sxm"), shapes, batch, context)
    size = float(round_cost(demands, clock, {"dkv": 1.0}).bytes)
    price = price_round(demands, clock, {"dkv": 1.0})
    known = sheet is not None and isinstance(price, RoundPrice)
    return size, price.seconds.median if known else None


def seconds_of(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median seconds of a call as the host sees it, until the device is done."""
    found = []
    for _ in range(repeats + 2):
        start = perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(perf_counter() - start)
    return median(found[2:])


def measure(
    plan: Plan,
    models: Mapping[str, CausalModel],
    batch: int,
    context: int,
    repeats: int,
    fused_on: Collection[str] = (),
) -> dict[str, Any]:
    """Seconds of a round: as a graph, as a flat program, and that captured in a CUDA graph."""
    fixed = FixedRound(*begun(plan, models, batch, context, fused_on))
    device = fixed.eager[0].device
    row: dict[str, Any] = {"batch": batch, "context": context, "kernels": bool(fused_on)}
    # A round writes to the text and the caches, from the same lengths on: again the same values.
    first = fixed.graph(*fixed.eager)
    row["eager_seconds"] = seconds_of(lambda: fixed.graph(*fixed.eager), device, repeats)
    program = fixed.exported()
    row["told_alike"] = bool(torch.equal(program(*fixed.fixed), first))
    row["exported_seconds"] = seconds_of(lambda: program(*fixed.fixed), device, repeats)
    row["captured_seconds"] = None
    if device.type == "cuda":
        try:
            replay = captured(lambda: program(*fixed.fixed)).replay
            row["captured_seconds"] = seconds_of(replay, device, repeats)
        except RuntimeError as error:  # an op that a graph cannot hold: said, not hidden
            row["not_captured"] = str(error).splitlines()[0]
    return row


def completed(row: dict[str, Any], size: float, predicted: float | None, bandwidth: float) -> None:
    """Add floor, prediction and ratios to a row."""
    row["floor_seconds"] = size / bandwidth
    row["predicted_seconds"] = predicted
    best = min(row[key] for key in MEASURED if row[key])
    row["floor_over_best"] = row["floor_seconds"] / best
    row["predicted_over_best"] = predicted and predicted / best


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per load, milliseconds."""
    keys = (*MEASURED, "floor_seconds", "predicted_seconds")
    lines = [
        "batch context kernels" + "".join(f"{key[:-8]:>11} ms" for key in keys) + "  floor / best"
    ]
    for row in rows:
        line = f"{row['batch']:5} {row['context']:7} {'ours' if row['kernels'] else '-':>7}"
        for key in keys:
            line += f"{row[key] * 1e3:14.2f}" if row[key] else f"{'-':>14}"
        lines.append(f"{line}{row['floor_over_best']:14.2f}")
        if "not_captured" in row:
            lines.append(f"not captured: {row['not_captured']}")
    return "\n".join(lines)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--drafted", type=int, default=4)
    options = parser.parse_args()
    device, plan = torch.device("cuda"), chain(options.drafted)
    name, bandwidth = torch.cuda.get_device_name(), copy_bandwidth(device)
    sizes = {"target": TARGET, "draft": DRAFT}
    models = {key: random_model(given, key, device, torch.bfloat16) for key, given in sizes.items()}
    rows = []
    loads = ((1, 1000), (8, 1000), (1, 8000))
    for (batch, context), fused_on in product(loads, ((), ("cuda",))):
        row = measure(plan, models, batch, context, 20, fused_on)
        completed(row, *floor_and_price(plan, sizes, batch, context, name), bandwidth)
        rows.append(row)
        torch.cuda.empty_cache()
    write_json_atomic(
        options.out,
        {
            "device": name, "torch": torch.__version__, "drafted": options.drafted,
            "copy_bytes_per_second": bandwidth, "rows": rows,
        },
    )  # fmt: skip
    print(f"{name}, torch {torch.__version__}, {options.drafted} drafted tokens per round")
    print(table(rows))


if __name__ == "__main__":
    main()
