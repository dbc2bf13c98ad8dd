"""How fast is the best compiled plan, against plain decoding and against `transformers`?

    python benchmarks/decoding.py --work DIR [--json]

On the reference models and the code task, at temperature 0 and batch 1. Plain decoding and the
three best-priced plans run through every backend, beside `transformers.generate` and its assisted
modes; all continue the same prompts turn by turn, in random order, and medians over turns are
compared.
Prices are those of the interpreter's times, and what compiling saves differs by plan: hence three.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from contests import Contender
from reference_problem import dealt_problem

from specplan import api
from specplan.backends.reference.backend import ReferenceBackend
from specplan.backends.registry import round_backend, round_backends
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.packages import Packages, RoundBackend
from specplan.backends.static.session import Program
from specplan.ir.files import write_json_atomic
from specplan.ir.ops import Forward, Lookup
from specplan.ir.plan import Plan, walk_plan
from specplan.measure.contenders import executable_timer, stock_timer
from specplan.measure.machine import hardware_name, versions
from specplan.measure.probes import plain_plan
from specplan.measure.stock import stock_runners
from specplan.measure.workbench import BENCH, TokenPrompt, Workbench
from specplan.passes.pipeline import run_passes
from specplan.planner import SearchResult, load_problem
from specplan.planner.comparing import score
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.models import CausalModel, load_model
from specplan.runtime.requests import Request

OUTPUT_TOKENS = 128
"""As in examples/quickstart."""
PLANS = 3
HEADS = 2
"""Of models with next to no width."""
PLAIN = "autoregressive"


def speed(contender: Contender) -> float:
    """Tokens per second, the median over turns."""
    return 1.0 / median(contender.spent)


class CountedCalls:
    """An executable's programs, with their calls counted."""

    def __init__(self) -> None:
        self.calls = 0

    def around(self, compile_round: Callable[..., Program]) -> Callable[..., Program]:
        """The same compiler, whose programs are watched."""

        def compiled(*shape: Any) -> Program:
            program = compile_round(*shape)

            def watched(*tensors: Any) -> Any:
                self.calls += 1
                return program(*tensors)

            return watched

        return compiled


def request_of(prompt: TokenPrompt) -> Request:
    return Request(prompt_tokens=prompt.tokens, max_new_tokens=OUTPUT_TOKENS)


def hollow_models(bench: Workbench, plan: Plan, work: Path) -> dict[str, CausalModel]:
    """Models like a plan's whose forwards cost next to nothing.

    Args:
        bench: the problem's models.
        plan: what runs them; the blocks that it names stay.
        work: folder to keep them in.
    """
    named = any(isinstance(op, Forward) and (op.layers or op.skip) for op in walk_plan(plan))
    models = bench.problem.models.by_role
    found = {}
    for role in plan.models_run:
        config = transformers.AutoConfig.from_pretrained(models[role].path)
        slight = {"hidden_size": 2 * HEADS, "intermediate_size": 2 * HEADS, "head_dim": 2}
        heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS}
        blocks = {} if named else {"num_hidden_layers": 1}
        config.update(slight | heads | blocks)
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(work / role)
        found[role] = load_model(work / role, dtype="float32")
    return found


def timed_rounds(
    backend: RoundBackend,
    plan: Plan,
    models: Mapping[str, CausalModel],
    folder: Path,
    prompts: Sequence[TokenPrompt],
) -> tuple[float, float]:
    """Calls and seconds per round of a compiled plan; the median over prompts."""
    counted = CountedCalls()
    packages = Packages(backend, models, folder)
    compiled = StaticExecutable(plan, models, counted.around(packages))
    generate(compiled, [request_of(prompts[0])])  # compiles, allocates and warms caches
    counted.calls = 0
    runs = [generate(compiled, [request_of(prompt)]) for prompt in prompts]
    calls = counted.calls / sum(run.rounds for run in runs)
    return calls, median(run.decode_seconds / run.rounds for run in runs)


def round_overhead(
    backend: RoundBackend,
    bench: Workbench,
    plan: Plan,
    folder: Path,
    prompts: Sequence[TokenPrompt],
) -> dict[str, float]:
    """Calls per round, its seconds, and the part of it that is no forward."""
    calls, seconds = timed_rounds(backend, plan, bench.models, folder, prompts)
    hollow = folder.with_name(f"{folder.name}-hollow")
    models = hollow_models(bench, plan, hollow / "models")
    _, beside = timed_rounds(backend, plan, models, hollow, prompts)
    return {
        "calls_per_round": calls,
        "seconds_per_round": seconds,
        "overhead_fraction": beside / seconds,
    }


def contenders(bench: Workbench, plans: dict[str, Plan], work: Path) -> dict[str, Contender]:
    """Every plan through every backend, and stock `transformers`."""
    found = {}
    for name, plan in plans.items():
        executables: dict[str, Executable] = {
            "reference": ReferenceBackend().compile(plan, bench.models)
        }
        for backend in round_backends():
            if round_backend(backend).available() is None:
                folder = package(work, backend, name)
                executables[backend] = round_backend(backend).compile(plan, bench.models, folder)
        for backend, executable in executables.items():
            words = f"{name}, {backend}"
            found[words] = Contender(words, executable_timer(bench, executable))
    for name, runner in stock_runners(bench, 1).items():
        found[name] = Contender(name, stock_timer(runner))
    return found


def package(work: Path, backend: str, plan: str) -> Path:
    """Where a plan compiled by a backend is kept."""
    return work / "compiled" / backend / re.sub(r"\W+", "-", plan)


def best_plans(found: SearchResult) -> tuple[dict[str, Plan], dict[str, Plan]]:
    """The best-priced plans that compile, by name, and the best of those that look nothing up."""
    objective = found.facts.objective
    single = [c for c in found.candidates if c.admissible and c.plan is not None and not c.by_cell]
    backends = [round_backend(name) for name in round_backends()]
    able: dict[str, Plan] = {}
    for candidate in sorted(single, key=lambda c: score(c, objective)):
        assert candidate.plan is not None
        lowered = run_passes(candidate.plan)
        refused = any(backend.capabilities.refusals(lowered) for backend in backends)
        if candidate.method != PLAIN and not refused:
            able[f"{candidate.method} {candidate.words}"] = candidate.plan
    alone = {
        name: plan
        for name, plan in able.items()
        if not any(isinstance(op, Lookup) for op in walk_plan(plan))
    }
    return dict(list(able.items())[:PLANS]), dict(list(alone.items())[:1])


def measure(work: Path, turns: int, seed: int) -> dict[str, Any]:
    described = dealt_problem(work, "code", seed, batches=(1,), output_tokens=OUTPUT_TOKENS)
    write_json_atomic(work / "problem.json", described)
    bench = Workbench(load_problem(work / "problem.json"))
    ours, alone = best_plans(api.optimize(described).search)
    plans = {PLAIN: plain_plan(True), **ours}
    found, draws = contenders(bench, plans, work), random.Random(seed)
    prompts = bench.prompts(BENCH)
    for contender in found.values():
        contender.run(prompts[:1])  # compiles, allocates and warms caches
    for turn in range(turns):
        for contender in draws.sample(list(found.values()), len(found)):
            contender.turn([prompts[turn % len(prompts)]])
    speeds = {name: speed(contender) for name, contender in found.items()}
    best, backend, ratios = paired(found)
    compiler, few = round_backend(backend), prompts[:8]
    overhead = round_overhead(compiler, bench, ours[best], package(work, backend, best), few)
    without = {}
    for name, plan in alone.items():
        folder = package(work, backend, name)
        calls, seconds = timed_rounds(compiler, plan, bench.models, folder, few)
        without = {"plan": name, "calls_per_round": calls, "seconds_per_round": seconds}
    return {
        "plan": best,
        "backend": backend,
        "without_host_sources": without,
        "turns": turns,
        "ratios": ratios,
        "tokens_per_second": speeds,
        **overhead,
        "hardware": hardware_name(bench.models["target"].device),
        "versions": versions(),
    }


def paired(found: dict[str, Contender]) -> tuple[str, str, dict[str, float]]:
    """Our fastest compiled plan, its backend, and over each other contender the ratio of speeds.

    A ratio is the median over turns of ratios within a turn.
    """

    def best(wanted: Callable[[str], bool]) -> Contender:
        return max((c for name, c in found.items() if wanted(name)), key=speed)

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
            "transformers_greedy": over(found[stock]),
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
    print(f"{result['plan']}, {result['backend']}")
    for name, speed in result["tokens_per_second"].items():
        print(f"{speed:8.1f} tokens/s  {name}")
    for name, ratio in result["ratios"].items():
        print(f"{ratio:8.2f} times {name}")
    print(f"{result['calls_per_round']:8.2f} calls per round")
    if result["without_host_sources"]:
        print("{calls_per_round:8.2f} of {plan}".format_map(result["without_host_sources"]))
    print(f"{result['overhead_fraction']:8.1%} of a round is no forward")


if __name__ == "__main__":
    main()
