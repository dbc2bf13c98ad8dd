"""How fast is the best compiled plan, against plain decoding and against `transformers`?

    python benchmarks/decoding.py --work DIR [--json]

On the reference models and the code task, at temperature 0 and batch 1. A plan is searched for on
every backend that is here. Plain decoding and the three best-priced plans of the backend that is
taken run through all of them, beside `transformers.generate` and its assisted modes; all continue
the same prompts turn by turn, in random order, and medians over turns are compared.
`predicted_tokens_per_second` is what each plan was priced at on each backend.
What the device profile and the compiled rounds took is kept in DIR.

`calls_per_round` counts calls from Python into compiled code, of the fastest plan by the backend
that runs it fastest; `without_host_sources` of the best-priced plan that looks nothing up, a
draft model's, by the same backend. `overhead_fraction` is the part of a round that is no forward of
a model, an upper bound: what a round of the same plan takes, compiled alike, when its models have
the same vocabulary, one block, and next to no width.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from contests import Contender
from reference_problem import dealt_problem
from regret import tell
from round_overhead import round_overhead, timed_rounds

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.registry import (
    INTERPRETER,
    backend_capabilities,
    round_backend,
    round_backends,
)
from specplan.gathering import gather
from specplan.ir.capabilities import refusals
from specplan.ir.files import write_json_atomic
from specplan.ir.ops import Lookup
from specplan.ir.plan import Plan, walk_plan
from specplan.measure.bench.contenders import executable_timer, stock_timer
from specplan.measure.bench.stock import stock_runners
from specplan.measure.device.probes import plain_plan
from specplan.measure.machine import hardware_name, versions
from specplan.measure.workbench import BENCH, Workbench
from specplan.planner import Candidate, SearchResult, load_problem
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.backends import best_backend
from specplan.planner.search.comparing import score
from specplan.planner.search.search import search
from specplan.problems import each_variant
from specplan.runtime.executable import Executable
from specplan.runtime.requests import Request

OUTPUT_TOKENS = 128
"""As in the table of the README."""
PLANS = 3
PLAIN = "autoregressive"


def speed(contender: Contender) -> float:
    """Tokens per second, the median over turns."""
    return 1.0 / median(contender.spent)


def contenders(bench: Workbench, plans: dict[str, Plan], work: Path) -> dict[str, Contender]:
    """Every plan through every backend, and stock `transformers`."""
    contending = {}
    for name, plan in plans.items():
        executables: dict[str, Executable] = {"eager": EagerBackend().compile(plan, bench.models)}
        for backend in round_backends():
            if round_backend(backend).available() is None:
                folder = package(work, backend, name)
                executables[backend] = round_backend(backend).compile(plan, bench.models, folder)
        for backend, executable in executables.items():
            words = f"{name}, {backend}"
            contending[words] = Contender(words, executable_timer(bench, executable))
    for name, runner in stock_runners(bench, 1).items():
        contending[name] = Contender(name, stock_timer(runner))
    return contending


def package(work: Path, backend: str, plan: str) -> Path:
    """Where a plan compiled by a backend is kept."""
    return work / "compiled" / backend / re.sub(r"\W+", "-", plan)


def searched(described: dict[str, Any], folder: Path) -> dict[str, SearchResult]:
    """A search on every backend that is here, by its name."""
    compilers = [name for name in round_backends() if round_backend(name).available() is None]
    problem = problem_from_dict(described | {"backends": [INTERPRETER, *compilers]}, folder)
    return {one.backend: search(gather(one, tell)) for one in each_variant(problem)}


def name_of(candidate: Candidate) -> str:
    return f"{candidate.method} {candidate.words}".strip()


def best_plans(search_result: SearchResult) -> tuple[dict[str, Plan], dict[str, Plan]]:
    """The best-priced plans that compile, by name, and the best of those that look nothing up."""
    objective, able = search_result.facts.objective, dict[str, Plan]()
    compilers = [backend_capabilities(name) for name in round_backends()]
    single = (
        c for c in search_result.candidates if c.admissible and not c.by_cell and c.method != PLAIN
    )
    for candidate in sorted(single, key=lambda c: score(c, objective)):
        assert candidate.plan is not None
        if not any(refusals(candidate.plan, compiler) for compiler in compilers):
            able[name_of(candidate)] = candidate.plan
    alone = {
        name: plan
        for name, plan in able.items()
        if not any(isinstance(op, Lookup) for op in walk_plan(plan))
    }
    return dict(list(able.items())[:PLANS]), dict(list(alone.items())[:1])


def predicted(searches: Mapping[str, SearchResult], plans: Mapping[str, Plan]) -> dict[str, float]:
    """Tokens per second that plain decoding and plans were priced at on each backend."""
    prices = {}
    for backend, result in searches.items():
        named = [(PLAIN, result.plain)]
        named += [(name_of(c), c) for c in result.candidates if c.plan in plans.values()]
        for name, candidate in named:
            if candidate.priced:
                speed = candidate.estimates[0].tokens_per_second
                prices[f"{name}, {backend}"] = speed.mean
    return prices


def measure(work: Path, turns: int, seed: int) -> dict[str, Any]:
    described = dealt_problem(work, "code", seed, batches=(1,), output_tokens=OUTPUT_TOKENS)
    write_json_atomic(work / "problem.json", described)
    bench = Workbench(load_problem(work / "problem.json"))
    searches = searched(described, work)
    taken = best_backend(searches)
    ours, alone = best_plans(taken)
    plans = {PLAIN: plain_plan(True), **ours}
    contending, draws = contenders(bench, plans, work), random.Random(seed)
    prompts = bench.prompts(BENCH)
    for contender in contending.values():
        contender.run(prompts[:1])  # compiles, allocates and warms caches
    for turn in range(turns):
        for contender in draws.sample(list(contending.values()), len(contending)):
            contender.turn([prompts[turn % len(prompts)]])
    speeds = {name: speed(contender) for name, contender in contending.items()}
    best, backend, ratios = paired(contending)
    compiler = round_backend(backend)
    few = [Request(prompt_tokens=one.tokens, max_new_tokens=OUTPUT_TOKENS) for one in prompts[:8]]
    overhead = round_overhead(compiler, bench, ours[best], package(work, backend, best), few)
    without = {}
    for name, plan in alone.items():
        folder = package(work, backend, name)
        calls, seconds = timed_rounds(compiler, plan, bench.models, folder, few)
        without = {"plan": name, "calls_per_round": calls, "seconds_per_round": seconds}
    return {
        "plan": best,
        "backend": backend,
        "picked": f"{name_of(taken.chosen)}, {taken.facts.problem.backend}",
        "without_host_sources": without,
        "turns": turns,
        "ratios": ratios,
        "tokens_per_second": speeds,
        "predicted_tokens_per_second": predicted(searches, plans),
        **overhead,
        "hardware": hardware_name(bench.models["target"].device),
        "versions": versions(),
    }


def paired(contending: dict[str, Contender]) -> tuple[str, str, dict[str, float]]:
    """Our fastest compiled plan, its backend, and over each other contender the ratio of speeds.

    A ratio is the median over turns of ratios within a turn.
    """

    def best(wanted: Callable[[str], bool]) -> Contender:
        return max((c for name, c in contending.items() if wanted(name)), key=speed)

    stock = "transformers.generate"
    compiled = tuple(f", {backend}" for backend in round_backends())
    ours = best(lambda name: not name.startswith((PLAIN, stock)) and name.endswith(compiled))

    def over(other: Contender) -> float:
        return median(theirs / mine for mine, theirs in zip(ours.spent, other.spent, strict=True))

    plan, _, backend = ours.words.rpartition(", ")
    return (
        plan,
        backend,
        {
            "autoregressive": over(best(lambda name: name.startswith(PLAIN))),
            "transformers_greedy": over(contending[stock]),
            "transformers_assisted": over(best(lambda name: name.startswith(f"{stock},"))),
        },
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    result = measure(options.work.resolve(), options.turns, options.seed)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['plan']}, {result['backend']}; by prices {result['picked']}")
    prices = result["predicted_tokens_per_second"]
    for name, speed in result["tokens_per_second"].items():
        price = f", priced at {prices[name]:.1f}" if name in prices else ""
        print(f"{speed:8.1f} tokens/s  {name}{price}")
    for name, ratio in result["ratios"].items():
        print(f"{ratio:8.2f} times {name}")
    print(f"{result['calls_per_round']:8.2f} calls per round")
    if result["without_host_sources"]:
        print("{calls_per_round:8.2f} of {plan}".format_map(result["without_host_sources"]))
    print(f"{result['overhead_fraction']:8.1%} of a round is no forward")


if __name__ == "__main__":
    main()
