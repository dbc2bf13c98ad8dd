"""A whole round of a Llama-8B-shaped target: predicted, measured, its floor.

    python benchmarks/gpu_round.py --out round.json [--plans NAME ...] [--inductor] [--profile FILE]

A 1B-shaped model drafts, or an EAGLE-3 head. Weights are random, so what is accepted says nothing;
the time of a round does not depend on it. The floor is the bytes of all forwards over the bandwidth
of a measured copy. The round runs op by op; as a flat program of tensor ops captured in a CUDA
graph; and as what Inductor compiles, both as it is and captured (`--inductor`); the first two with
tensor ops alone and with our kernels. `--profile` writes which kernels take a captured round how
long.
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
from specplan.cost_models.models.drafter_shapes import described_drafter
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.new_heads import eagle3_config
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import RoundPrice, price_round, read_round, round_cost
from specplan.ir.files import write_json_atomic
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.device.probes import chain_plan
from specplan.runtime.executable import Executable
from specplan.runtime.models.attention import ATTENTION_NAME, assert_attention
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.training.new_heads import new_head

DRAFT: dict[str, Any] = dict(
    hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=8192, vocab_size=128256, max_position_embeddings=131072,
    tie_word_embeddings=True,
)  # fmt: skip
CAPTURED = "kernels, captured"
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
COMPILED = LOADS[:1]
"""Those that Inductor compiles rounds for, minutes each."""
HEAD = eagle3_config({**LLAMA_8B, "rms_norm_eps": 1e-5}, "target")
READ = (2, 16, 29)
"""Layers whose hidden states the head reads, as published ones of Llama 3 8B do."""


def chain(length: int) -> Plan:
    """The draft model drafts a chain, the target verifies it greedily."""
    return chain_plan(length, greedy=True)


def head_chain(length: int, read: Sequence[int] | None = None) -> Plan:
    """A head that reads these layers drafts a chain, the target verifies it greedily."""
    return parse_plan(
        f"""plan head_chain
model target
model head
state @kv = cache target
state @head_kv = cache head
state @s = track target layer={list(read or READ)}
state @o = track head layer=last
round decode {{
  %t0 = root
  %q0 = forward head %t0 cache=@head_kv pending={length + 1} features=@s shift=1 keep=@o
  %t1 = grow %t0 at=%t0 logits=%q0
  %c = repeat {length - 1} (%t = %t1) {{
    %f = pick %t of=newest
    %q = forward head %f cache=@head_kv features=@o shift=1 keep=@o write=scratch
    %n = grow %t at=%f logits=%q
    yield %n
  }}
  %l = forward target %c cache=@kv pending=1 keep=@s
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
  commit @s %e
  commit @head_kv %e
  commit @o %e
}}
"""
    )


PLANS = {"chain": chain, "head_chain": head_chain}


def random_head(
    target: CausalModel, tokens: Sequence[int], read: Sequence[int] | None = None
) -> Module:
    """An EAGLE-3 head of the published size, that reads these layers; random weights."""
    config = {**HEAD, "eagle_aux_hidden_state_layer_ids": list(read or READ)}
    head = new_head(config, target, 0, [tokens]).requires_grad_(False).eval()
    head.pack()
    return head


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
    plan: Plan, models: Mapping[str, Module], load: Load, folder: Path, compiled: bool
) -> dict[str, Executable]:
    """What runs a round, by how it is made and launched; op by op at the first load alone."""
    ours: dict[str, Any] = {"fused_on": {models["target"].device.type}}
    if compiled:
        backend = InductorBackend()
        packages = Packages(backend, models, folder)
        return {
            "inductor": StaticExecutable(plan, models, packages, **ours),
            "inductor, captured": backend.compile(plan, models, folder),
        }
    captured: dict[str, Any] = {"captured_on": {"cuda"}}
    made: dict[str, Executable] = {
        CAPTURED: StaticExecutable(plan, models, flat_program, **captured, **ours),
        "torch ops, captured": StaticExecutable(plan, models, flat_program, **captured),
    }
    if load == LOADS[0]:
        made["torch ops"] = StaticExecutable(plan, models)
        made["kernels"] = StaticExecutable(plan, models, **ours)
    return made


def shapes_of() -> dict[str, ModelShape]:
    """The models as they are priced."""
    target = llama_shape(LLAMA_8B, "target")
    head = described_drafter(HEAD, target, "head").shape
    return {"target": target, "draft": llama_shape(DRAFT, "draft"), "head": head}


def floor_and_price(
    plan: Plan, shapes: Mapping[str, ModelShape], batch: int, context: int, name: str
) -> tuple[float, float | None]:
    """Bytes of a round's forwards, and its predicted seconds where the device has a data sheet."""
    demands = read_round(plan, plan.rounds[0])
    assert not hasattr(demands, "reason"), str(demands)
    device = device_called(name)
    pricer = RoundPricer(device or load_device("h100-sxm"), shapes, batch, context)
    lags = {"draft_kv": 1.0, "head_kv": 1.0}
    size = float(round_cost(demands, pricer, lags).bytes)
    price = price_round(demands, pricer, lags)
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


def requests_of(target: CausalModel, load: Load) -> list[Request]:
    """Random prompts."""
    tokens = torch.randint(
        target.vocab_size, (load.batch, load.context), generator=torch.Generator().manual_seed(0)
    )
    return [Request(prompt_tokens=tuple(row), max_new_tokens=64) for row in tokens.tolist()]


def measure(
    plan: Plan,
    models: Mapping[str, Any],
    load: Load,
    folder: Path,
    repeats: int = 20,
    compiled: bool = False,
) -> dict[str, Any]:
    """Seconds of a round by every way that can run it, and why others cannot."""
    requests = requests_of(models["target"], load)
    row: dict[str, Any] = {"plan": plan.name, "batch": load.batch, "context": load.context}
    row |= {"seconds": {}, "errors": {}, "prepared_seconds": {}}
    first: list[list[int]] | None = None
    for way, executable in ways(plan, models, load, folder, compiled).items():
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


def profile(plan: Plan, models: Mapping[str, Any], load: Load, rounds: int = 5) -> str:
    """Microseconds of the kernels of a captured round, by their names, the longest first."""
    executable = ways(plan, models, load, Path(), False)[CAPTURED]
    session = executable.start(requests_of(models["target"], load))
    session.prefill()
    for _ in range(WARM_UP):
        session.step(plan.rounds[0].name)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(rounds):
            session.step(plan.rounds[0].name)
    session.release()
    spent = [(one.device_time_total / rounds, one.count / rounds, one.key)
             for one in seen.key_averages()]  # fmt: skip
    total = sum(time for time, _, _ in spent)
    lines = [f"{time:10.1f} {count:7.1f} {key[:120]}" for time, count, key in sorted(spent)[::-1]]
    return "\n".join([f"{plan.name}, {load}: {total:.0f} us in kernels", *lines[:25]])


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
    load = f"{row['plan']}, batch {row['batch']}, context {row['context']}"
    lines = [f"{load}: {prediction}floor {floor * 1e3:.2f} ms"]
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
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=list(PLANS))
    parser.add_argument("--profile", type=Path, help="file for the times of kernels")
    options = parser.parse_args()
    device = torch.device("cuda")
    device_name, bandwidth = torch.cuda.get_device_name(), copy_bandwidth(device)
    sizes = {"target": LLAMA_8B, "draft": DRAFT}
    models: dict[str, Any] = {
        key: random_model(given, key, device, torch.bfloat16) for key, given in sizes.items()
    }
    some = requests_of(models["target"], LOADS[0])[0]
    models["head"] = random_head(models["target"], some.prompt_tokens)
    document: dict[str, Any] = {
        "device": device_name, "torch": torch.__version__, "drafted": options.drafted,
        "copy_bytes_per_second": bandwidth, "rows": [],
    }  # fmt: skip
    print(f"{device_name}, torch {torch.__version__}, {options.drafted} drafted tokens per round")
    profiles: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for plan in (PLANS[name](options.drafted) for name in options.plans):
            roles = {one.name: models[one.name] for one in plan.models}
            for load in COMPILED if options.inductor else LOADS:
                row = measure(plan, roles, load, Path(folder), compiled=options.inductor)
                sheet = floor_and_price(plan, shapes_of(), load.batch, load.context, device_name)
                completed(row, *sheet, bandwidth)
                document["rows"].append(row)
                write_json_atomic(options.out, document)
                print(lines_of(row), flush=True)
            if options.profile:
                profiles.append(profile(plan, roles, LOADS[0]))
                options.profile.write_text("\n\n".join(profiles) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
