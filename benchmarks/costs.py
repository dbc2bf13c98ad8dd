"""How many candidates a second are priced, and in how much memory.

A candidate is a plan at one batch size and context. Plans are chains and best-first trees of a
draft model; each is read once (types and sizes of its ops) and priced on a grid of batch sizes
and contexts at once. No model is loaded and no torch imported.

    python benchmarks/costs.py [--json] [--device h100-sxm]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from specplan.cost_models.acceptance.evidence.base import read_drafting
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.demands import round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import Unpriced, price_round
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
LENGTHS = range(1, 17)
WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
TARGET = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
"""config.json of meta-llama/Llama-3.1-70B, the keys that costs depend on."""
DRAFT = TARGET | {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "intermediate_size": 8192,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
"""config.json of meta-llama/Llama-3.2-1B."""
HEAD = (
    "plan p\nmodel target\nmodel draft\nstate @kv = cache target\nstate @draft_kv = cache draft\n"
    "round decode {\n  %t0 = root\n"
)
TAIL = (
    "  %l = forward target %c cache=@kv pending=1\n  %a = accept %c target=%l\n  %e = emit %a\n"
    "  commit @kv %e\n  commit @draft_kv %e\n}\n"
)


def chain(length: int) -> Plan:
    """A chain of `length` drafted tokens."""
    return parse_plan(
        f"{HEAD}  %c = repeat {length} (%t = %t0) {{\n    %f = pick %t of=newest\n"
        "    %q = forward draft %f cache=@draft_kv pending=2\n    %n = grow %t at=%f logits=%q\n"
        f"    yield %n\n  }}\n{TAIL}"
    )


def bush(width: int, depth: int) -> Plan:
    """`width` children of the root, each the head of a chain: `width * depth` nodes."""
    lines = [HEAD + "  %q0 = forward draft %t0 cache=@draft_kv pending=2"]
    for level in range(depth):
        tree = "%c" if level == depth - 1 else f"%t{level + 1}"
        at, children = ("%t0", width) if level == 0 else (f"%f{level}", 1)
        if level:
            lines.append(f"  {at} = pick %t{level} of=newest")
            lines.append(f"  %q{level} = forward draft {at} cache=@draft_kv")
        lines.append(f"  {tree} = grow %t{level} at={at} logits=%q{level} children={children}")
    return parse_plan("\n".join(lines) + "\n" + TAIL)


def plans() -> list[Plan]:
    """Every plan that is priced."""
    return [
        *map(chain, LENGTHS),
        *(bush(width, depth) for width in WIDTHS for depth in range(2, 8)),
    ]


def price_all(device_name: str, candidates: list[Plan]) -> list[Seconds]:
    """Price every plan on the whole grid, nothing remembered from before."""
    round_types.cache_clear()
    round_demands.cache_clear()
    shapes = {
        "target": ModelShape.from_config(TARGET, name="target"),
        "draft": ModelShape.from_config(DRAFT, name="draft"),
    }
    batch = np.array(BATCHES, dtype=float)[:, None]
    context = np.array(CONTEXTS, dtype=float)[None, :]
    pricer = RoundPricer(load_device(device_name), shapes, batch, context)
    acceptance = AcceptanceProfile.from_hazards([[0.7, 0.1, 0.05] + [0.005] * 29], trials=1000.0)
    times = []
    for plan in candidates:
        drafting = read_drafting(plan, plan.rounds[0], acceptance.evidence)
        assert not isinstance(drafting, Unpriced), drafting
        price = price_round(drafting.demands, pricer, drafting.lag(batch))
        assert not isinstance(price, Unpriced), price
        per_token = price.seconds.times(drafting.tokens_per_round.inverse)
        assert np.asarray(per_token.median).shape == (len(BATCHES), len(CONTEXTS))
        times.append(per_token)
    return times


def seconds_of(work: Callable[[], object]) -> float:
    """Processor seconds of this thread's process for `work`; a busy neighbour does not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="h100-sxm")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    candidates = plans()
    grid = len(BATCHES) * len(CONTEXTS)
    price_all(options.device, candidates[:2])
    taken = median(
        seconds_of(lambda: price_all(options.device, candidates)) for _ in range(options.repeats)
    )
    count = len(candidates) * grid
    result = {
        "plans": len(candidates),
        "grid": grid,
        "candidates": count,
        "seconds": taken,
        "microseconds_per_candidate": taken / count * 1e6,
        "candidates_per_second": count / taken,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch_loaded": "torch" in sys.modules,
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"{count} candidates ({len(candidates)} plans x {grid} points) in {taken:.3f} s:")
    print(
        f"  {result['microseconds_per_candidate']:.1f} microseconds each, "
        f"{result['candidates_per_second']:.0f} a second on one core"
    )
    print(
        f"  peak memory {result['peak_bytes'] / 1e6:.0f} MB, torch loaded: {result['torch_loaded']}"
    )


if __name__ == "__main__":
    main()
