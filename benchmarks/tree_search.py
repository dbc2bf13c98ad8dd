"""Time the exact tree search against statements of the published dynamic programme.

    python benchmarks/tree_search.py [--json] [--rounds 2] [--quick]

Sizes and depths count the root, as the published programme does (Sequoia, arXiv 2402.12374,
section 3.2): budget 128 and depth 10 are 127 drafted nodes in 9 levels. Every side finds the
values of all sizes and depths and one tree. Turns alternate in one process; medians of the
processor's seconds are shown, as other work on the machine changes them least.

- published: the published loops, element by element in a torch tensor, which is what the published
  programme works on (its best branch is looked for again in the innermost loop); in a NumPy array
  where torch is not installed. `published_store` says which it was, `ratio` is to this statement.
- array, lists: the same loops in a NumPy array, and in plain lists (`ratio_to_lists`), where an
  element costs a fraction of what it costs in a tensor.
- sheet: plain lists, and the best branch looked for once per size: the least a loop can do.
- numpy: the same programme over whole vectors.
"""

from __future__ import annotations

import argparse
import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from sequoia_demo import DEMO
from tree_statements import loops_over, numpy_programme, published_store, sheet_programme

from specplan.planner.trees import AcceptanceTable, StaticTree, search_trees

ORDERED = sorted(DEMO, reverse=True)
GROWTH = (64, 128, 256, 512, 1024, 2048)


def ours(rows: Sequence[Sequence[float]], budget: int, depth: int) -> tuple[float, StaticTree]:
    """Values of all sizes and depths, and the tree of the largest."""
    search = search_trees(AcceptanceTable.of_rows(rows), budget - 1, depth - 1)
    return float(search.values[-1, -1]), search.tree(budget - 1, depth - 1)


def timed(run: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Median seconds of a run on the processor, and its result."""
    taken: list[float] = []
    for _ in range(repeats):
        start = process_time()
        result = run()
        taken.append(process_time() - start)
    return median(taken), result


def peak_bytes(run: Callable[[], Any]) -> int:
    """Most bytes that a run held beyond those before it."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def compared(
    name: str, rates: Sequence[float], budget: int, depth: int, rounds: int
) -> dict[str, Any]:
    """One table, all statements in turns; all must agree on the value."""
    store = published_store()
    sides: dict[str, tuple[int, Callable[[], tuple[float, Any]]]] = {
        "ours": (20, lambda: ours([rates], budget, depth)),
        "published": (1, lambda: loops_over(store, rates, budget, depth)),
        "array": (1, lambda: loops_over("numpy", rates, budget, depth)),
        "lists": (1, lambda: loops_over("lists", rates, budget, depth)),
        "sheet": (1, lambda: sheet_programme(rates, budget, depth)),
        "numpy": (5, lambda: numpy_programme(rates, budget, depth)),
    }
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, (repeats, run) in sides.items():
            taken, (value, _tree) = timed(run, repeats)
            seconds[side].append(taken)
            expected = ours([rates], budget, depth)[0]
            # the published tensor holds 32-bit floats
            assert abs(value - expected) < (1e-4 if side == "published" else 1e-9), (side, value)
    medians = {f"{side}_seconds": median(taken) for side, taken in seconds.items()}
    return {
        "name": name,
        **medians,
        "published_store": store,
        "ratio": medians["published_seconds"] / medians["ours_seconds"],
        "ratio_to_lists": medians["lists_seconds"] / medians["ours_seconds"],
        "peak_bytes": peak_bytes(lambda: ours([rates], budget, depth)),
    }


def alone(name: str, rows: Sequence[Sequence[float]], budget: int, depth: int) -> dict[str, Any]:
    """A case too large for the published programme."""
    seconds, _ = timed(lambda: ours(rows, budget, depth), 3)
    peak = peak_bytes(lambda: ours(rows, budget, depth))
    nothing = dict.fromkeys(("published_seconds", "published_store", "ratio", "ratio_to_lists"))
    return {"name": name, "ours_seconds": seconds, **nothing, "peak_bytes": peak}


def cases(rounds: int, quick: bool) -> Iterator[dict[str, Any]]:
    """The cases of the report; `quick` takes a small budget and leaves out the growth."""
    generator = np.random.default_rng(0)
    shuffled = generator.permutation(DEMO).tolist()
    budget, depth = (24, 6) if quick else (128, 10)
    at = f"budget {budget}, depth {depth}, 32 ranks"
    yield compared(f"not monotone, {at}", DEMO, budget, depth, rounds)
    yield compared(f"monotone, {at}", ORDERED, budget, depth, rounds)
    if quick:
        return
    large = "budget 2048, depth 32, 32 ranks"
    for budget in GROWTH:
        yield alone(f"not monotone, budget {budget}, depth 32, 32 ranks", [DEMO], budget, 32)
    yield alone(f"monotone, {large}", [ORDERED], 2048, 32)
    yield alone(f"shuffled ranks, {large}", [shuffled], 2048, 32)
    yield alone(f"increasing with rank, {large}", [ORDERED[::-1]], 2048, 32)
    rows = [[rate * 0.98**level for rate in DEMO] for level in range(32)]
    yield alone(f"not monotone, every depth its own row, {large}", rows, 2048, 32)


def words(compared_cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The report for a reader."""
    for case in compared_cases:
        yield f"{case['name']}: {case['ours_seconds']:.2g} s, {case['peak_bytes'] / 1e6:.1f} MB"
        for side in ("published", "array", "lists", "sheet", "numpy"):
            other = case.get(f"{side}_seconds")
            if other:
                label = f"{side} ({case['published_store']})" if side == "published" else side
                yield f"  {label}: {other:.3g} s, {other / case['ours_seconds']:,.0f} times ours"
    growth = [
        c["ours_seconds"] for c in compared_cases if c["name"].startswith("not monotone, budget")
    ]
    growth = growth[-len(GROWTH) :]
    if len(growth) > 1:
        doubled = (growth[-1] / growth[0]) ** (1 / (len(growth) - 1))
        yield (
            f"Growth: {doubled:.1f} times the time per doubling of the budget. Sums over all "
            "splits of all sizes are N^2 log W per level (a child with k elder siblings of at "
            "least its hazard heads at most 1/(k + 1) of the nodes); a small budget is dominated "
            "by the fixed cost of a few calls per rank and level, and levels end where more depth "
            "buys nothing, which a larger budget reaches later."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=2, help="interleaved turns")
    parser.add_argument("--quick", action="store_true", help="a small budget, no growth")
    options = parser.parse_args()
    compared_cases = list(cases(options.rounds, options.quick))
    print(
        json.dumps({"cases": compared_cases}, indent=2)
        if options.json
        else "\n".join(words(compared_cases))
    )


if __name__ == "__main__":
    main()
