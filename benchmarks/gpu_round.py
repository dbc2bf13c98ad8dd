"""A whole round of a Llama-8B-shaped target and a 1B-shaped draft: predicted, measured, its floor.

    python benchmarks/gpu_round.py --out round.json [--inductor]

Weights are random, so what is accepted says nothing; the time of a round does not depend on it. The
floor is the bytes of all forwards over the bandwidth of a measured copy. The round runs op by op;
as a flat program of tensor ops captured in a CUDA graph; and as what Inductor compiles, both as it
is and captured (`--inductor`); the first two with tensor ops alone and with our kernels.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from gpu_timing import LLAMA_8B, copy_bandwidth, device_called, llama_shape

from specplan.backends.inductor.backend import InductorBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.export import flat_program
from specplan.backends.static.packages import Packages
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, price_round, read_round, round_cost
from specplan.ir.files import write_json_atomic
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.executable import Executable
from specplan.runtime.models.attention import ATTENTION_NAME, assert_attention
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request

DRAFT: dict[str, Any] = dict(
    hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=8192, vocab_size=128256, max_position_embeddings=131072,
    tie_word_embeddings=True,
)  # fmt: skip
WARM_UP = 4
"""Rounds before those that are timed: the first is as it is, the second is captured."""


@dataclass(frozen=True)
class Load:
    """One load.

    Attributes:
        batch: rows.
        context: tokens of text per row.
    """

    batch: int
    context: int


LOADS = (Load(1, 1000), Load(8, 1000), Load(1, 8000))
COMPILED = LOADS[:2]
"""Those that Inductor compiles rounds for, minutes each."""


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
    %n = grow %t at=%f logits=%q
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
    assert_attention(model)
    return CausalModel(model, name=name, digest=name)


def ways(
    plan: Plan, models: Mapping[str, CausalModel], folder: Path, compiled: bool
) -> dict[str, Executable]:
    """What runs a round, by how it is made and launched."""
    ours: dict[str, Any] = {"fused_on": {models["target"].device.type}}
    if compiled:
        backend = InductorBackend()
        packages = Packages(backend, models, folder)
        return {
            "inductor": StaticExecutable(plan, models, packages, **ours),
            "inductor, captured": backend.compile(plan, models, folder),
        }
    captured: dict[str, Any] = {"captured_on": {"cuda"}}
    return {
        "torch ops": StaticExecutable(plan, models),
        "torch ops, captured": StaticExecutable(plan, models, flat_program, **captured),
        "kernels": StaticExecutable(plan, models, **ours),
        "kernels, captured": StaticExecutable(plan, models, flat_program, **captured, **ours),
    }


def floor_and_price(
    plan: Plan, sizes: Mapping[str, Mapping[str, Any]], batch: int, context: int, name: str
) -> tuple[float, float | None]:
    """Bytes of a round's forwards, and its predicted seconds where the device has a data sheet."""
    shapes = {model: llama_shape(given, model) for model, given in sizes.items()}
    demands = read_round(plan, plan.rounds[0])
    assert not hasattr(demands, "reason"), str(demands)
    device = device_called(name)
    pricer = RoundPricer(device or load_device("h100-sxm"), shapes, batch, context)
    size = float(round_cost(demands, pricer, {"dkv": 1.0}).bytes)
    price = price_round(demands, pricer, {"dkv": 1.0})
    if device is None or not isinstance(price, RoundPrice):
        return size, None
    return size, price.seconds.median


def seconds_per_round(
    executable: Executable, requests: Sequence[Request], repeats: int
) -> tuple[float, list[list[int]]]:
    """Median seconds of a round until the host knows its tokens, and the tokens of them all."""
    session = executable.start(requests)
    session.prefill()
    name = executable.plan.rounds[0].name
    spent: list[float] = []
    tokens: list[list[int]] = []
    for _ in range(repeats + WARM_UP):
        start = perf_counter()
        tokens += map(list, session.step(name).tokens)
        spent.append(perf_counter() - start)
    session.release()
    return median(spent[WARM_UP:]), tokens


def measure(
    plan: Plan,
    models: Mapping[str, CausalModel],
    load: Load,
    folder: Path,
    repeats: int = 20,
    compiled: bool = False,
) -> dict[str, Any]:
    """Seconds of a round by every way that can run it, and why others cannot."""
    tokens = torch.randint(
        models["target"].vocab_size,
        (load.batch, load.context),
        generator=torch.Generator().manual_seed(0),
    )
    requests = [Request(prompt_tokens=tuple(row), max_new_tokens=64) for row in tokens.tolist()]
    row: dict[str, Any] = {"batch": load.batch, "context": load.context}
    row |= {"seconds": {}, "errors": {}, "prepared_seconds": {}}
    first: list[list[int]] | None = None
    for way, executable in ways(plan, models, folder, compiled).items():
        start = perf_counter()
        try:
            seconds, emitted = seconds_per_round(executable, requests, repeats)
        except Exception as error:  # a compiler may refuse: say so and go on
            row["errors"][way] = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
            continue
        row["seconds"][way] = seconds
        row["prepared_seconds"][way] = perf_counter() - start - seconds * repeats
        first = first or emitted
        row.setdefault("tokens_alike", {})[way] = emitted == first
        torch.cuda.empty_cache()
    return row


def completed(row: dict[str, Any], size: float, predicted: float | None, bandwidth: float) -> None:
    """Add floor, prediction and ratios to a row."""
    row["floor_seconds"] = size / bandwidth
    row["predicted_seconds"] = predicted
    best = min(row["seconds"].values(), default=float("inf"))
    row["floor_over_best"] = row["floor_seconds"] / best
    row["predicted_over_best"] = predicted and predicted / best


def lines_of(row: Mapping[str, Any]) -> str:
    """A load, and a line for each way to run a round of it."""
    floor, predicted = row["floor_seconds"], row["predicted_seconds"]
    prediction = f"predicted {predicted * 1e3:.2f} ms, " if predicted else ""
    lines = [
        f"batch {row['batch']}, context {row['context']}: {prediction}floor {floor * 1e3:.2f} ms"
    ]
    for way, seconds in row["seconds"].items():
        ready = f"ready after {row['prepared_seconds'][way]:.0f} s"
        lines.append(f"{seconds * 1e3:9.2f} ms {floor / seconds:6.2f} of the floor  {way}, {ready}")
    lines += [f"{'-':>9}  {way}: {error}" for way, error in row["errors"].items()]
    return "\n".join(lines)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--drafted", type=int, default=4)
    parser.add_argument("--inductor", action="store_true", help="compile rounds, which takes long")
    options = parser.parse_args()
    device, plan = torch.device("cuda"), chain(options.drafted)
    name, bandwidth = torch.cuda.get_device_name(), copy_bandwidth(device)
    sizes = {"target": LLAMA_8B, "draft": DRAFT}
    models = {key: random_model(given, key, device, torch.bfloat16) for key, given in sizes.items()}
    document: dict[str, Any] = {
        "device": name, "torch": torch.__version__, "drafted": options.drafted,
        "copy_bytes_per_second": bandwidth, "rows": [],
    }  # fmt: skip
    print(f"{name}, torch {torch.__version__}, {options.drafted} drafted tokens per round")
    with tempfile.TemporaryDirectory() as folder:
        for load in COMPILED if options.inductor else LOADS:
            row = measure(plan, models, load, Path(folder), compiled=options.inductor)
            sheet = floor_and_price(plan, sizes, load.batch, load.context, name)
            completed(row, *sheet, bandwidth)
            document["rows"].append(row)
            write_json_atomic(options.out, document)
            print(lines_of(row), flush=True)


if __name__ == "__main__":
    main()
