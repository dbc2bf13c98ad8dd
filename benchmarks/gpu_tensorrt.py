"""Rounds compiled by torch-tensorrt on this GPU: do they give eager's tokens, and how fast?

    python benchmarks/gpu_tensorrt.py --out tensorrt.json [--layers 4] [--rounds 24]

Plain decoding, a chain and a tree by a draft model, and a chain by an EAGLE-3 head, of a target
with some layers of a Llama 8B's sizes, random weights, batch 1, greedy. For each: the split that
`backends/tensorrt/conversion/split.py` predicts, the engines that were built, whether the tokens
are the interpreter's, and seconds per round of both; where it does not compile, the first op that
fails. Prompts are read by the interpreter. The last lines are a table.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from gpu_round import DRAFT, chain, head_chain, random_head, random_model
from gpu_timing import LLAMA_8B

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph import RoundGraph
from specplan.backends.tensorrt.backend import TensorRtBackend, registry_here
from specplan.backends.tensorrt.conversion.split import split_round
from specplan.backends.tensorrt.lowering import lower_round
from specplan.ir.errors import foreign_words
from specplan.ir.files import read_json, write_json_atomic
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.device.probes import plain_plan
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request

PROMPT, TURNS = 200, 5
TREE = """plan tree
model target
model draft
state @kv = cache target
state @dkv = cache draft
round decode {
  %t0 = root
  %f0 = pick %t0 of=newest
  %q0 = forward draft %f0 cache=@dkv pending=3
  %t1 = grow %t0 at=%f0 logits=%q0 children=2
  %f1 = pick %t1 of=newest
  %q1 = forward draft %f1 cache=@dkv
  %t2 = grow %t1 at=%f1 logits=%q1 children=2
  %l = forward target %t2 cache=@kv pending=1
  %a = accept %t2 target=%l
  %e = emit %a
  commit @kv %e
  commit @dkv %e
}
"""


def measure(
    name: str, plan: Plan, models: dict[str, Any], folder: Path, rounds: int
) -> dict[str, Any]:
    """One plan, both ways."""
    roles = {one.name: models[one.name] for one in plan.models}
    requests = [request_of(models["target"].vocab_size, rounds)]
    eager, row = EagerBackend().compile(plan, roles), {"plan": name, "batch": 1}
    expected = generate(eager, requests)
    row["eager_seconds"] = seconds_of(eager, requests)

    def predict(graph: RoundGraph, _: Any, tensors: Any) -> RoundGraph:
        lowered = lower_round(graph, tensors)
        row["predicted"] = split_round(lowered.program, registry_here().version).words()
        return graph

    try:
        generate(StaticExecutable(plan, roles, predict), requests)
        start = perf_counter()
        compiled = TensorRtBackend().compile(plan, roles, folder / name)
        got = generate(compiled, requests)
        row["ready_seconds"] = perf_counter() - start
        stored = read_json(next((folder / name).glob("*/round.json")))
        row["engines"], row["steps"] = len(stored["engines"]), len(stored["glue"]["steps"])
        tokens = [one.tokens for one in got.completions]
        row["tokens_agree"] = tokens == [one.tokens for one in expected.completions]
        row["seconds"] = seconds_of(compiled, requests)
    except Exception as error:  # whatever the compiler raises: it names the op, or is the finding
        row["error"] = foreign_words(error)
    return row


def request_of(vocabulary: int, rounds: int) -> Request:
    """A prompt that repeats itself."""
    tokens = tuple((7 * (place % 23)) % vocabulary for place in range(PROMPT))
    return Request(prompt_tokens=tokens, max_new_tokens=rounds)


def seconds_of(executable: Executable, requests: list[Request]) -> float:
    """Seconds per round behind the first, the median of turns."""
    times = [generate(executable, requests).seconds_per_later_round for _ in range(TURNS + 1)]
    return median(times[1:])


def line_of(row: dict[str, Any]) -> str:
    """One line of the table."""
    eager = f"{row['plan']:<12} eager {row['eager_seconds'] * 1e3:8.2f} ms"
    split = row.get("predicted", "not exported")
    if "error" in row:
        return f"{eager} | {split} | {row['error']}"
    agree = "tokens agree" if row["tokens_agree"] else "OTHER TOKENS"
    times = f"tensorrt {row['seconds'] * 1e3:8.2f} ms, ready after {row['ready_seconds']:.0f} s"
    return f"{eager} | {split} | {row['engines']} engines built | {times} | {agree}"


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=4, help="of the target")
    parser.add_argument("--rounds", type=int, default=24, help="new tokens of a run")
    options = parser.parse_args()
    missing = TensorRtBackend().available()
    if missing is not None:
        raise SystemExit(f"backend tensorrt: {missing}")
    device, dtype = torch.device("cuda"), torch.bfloat16
    depths = {"target": (LLAMA_8B, options.layers), "draft": (DRAFT, 2)}
    sizes = {name: given | {"num_hidden_layers": deep} for name, (given, deep) in depths.items()}
    models: dict[str, Any] = {
        name: random_model(given, name, device, dtype) for name, given in sizes.items()
    }
    prompt = request_of(models["target"].vocab_size, 1).prompt_tokens
    plans = {"plain": plain_plan(greedy=True), "chain": chain(4), "tree": parse_plan(TREE)}
    read = sorted({1, options.layers // 2, options.layers - 1})
    models["head"] = random_head(models["target"], prompt, read)
    plans["eagle3 head"] = head_chain(2, read)
    versions = f"torch {torch.__version__}, torch-tensorrt {TensorRtBackend().version}"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, plan in plans.items():
            rows.append(measure(name, plan, models, Path(folder), options.rounds))
            document = {"device": torch.cuda.get_device_name(), "versions": versions, "rows": rows}
            write_json_atomic(options.out, document)
    print(f"{torch.cuda.get_device_name()}, {versions}, {options.layers} layers")
    print("\n".join(map(line_of, rows)))
    failed = next((row["error"] for row in rows if "error" in row), None)
    if failed:
        raise SystemExit(f"first failing op: {failed}")


if __name__ == "__main__":
    main()
