"""The best plan with heads against the best with the draft model and against no speculation.

    python examples/training/race.py PROBLEM.yaml [--prompts 12]

The problem names both drafters, `medusa` and `draft`. Rounds are compiled by ONNX Runtime. Some
prompts of the split `profile` decide which chain or tree of each drafter is the fastest; these two
then take turns with plain decoding on prompts of the split `bench`, each prompt twice. Lookups and
all other methods are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from specplan.gathering import open_bench
from specplan.measure.bench.contenders import Timer, compiled_timer
from specplan.measure.bench.interleave import seconds_in_turns
from specplan.measure.device.probes import plain_plan
from specplan.measure.workbench import BENCH, PROFILE, TokenPrompt
from specplan.planner import load_problem
from specplan.planner.methods.draft_model import METHOD as DRAFT_MODEL
from specplan.planner.methods.draft_model import DraftModelOptions
from specplan.planner.methods.parallel_heads import METHOD as HEADS
from specplan.planner.templates.head_drafts import HeadTreeOptions
from specplan.planner.trees import chain, expansion_tree

PLAIN = "no speculation"
OF_HEADS = {"K=1": chain(1), "K=2": chain(2), "tree 2-1": expansion_tree((2, 1))}
OF_MODEL = {"K=2": chain(2), "K=3": chain(3), "K=4": chain(4)}
DECIDING = 8
"""Prompts that decide between the shapes of one drafter."""


def main() -> None:
    """Print tokens per second of whole requests, and each speed over plain decoding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problem", help="a problem file")
    parser.add_argument("--prompts", type=int, default=12)
    asked = parser.parse_args()
    problem = load_problem(asked.problem)
    bench, facts = open_bench(problem)
    plans = {PLAIN: plain_plan(True)}
    for words, tree in OF_HEADS.items():
        heads = HeadTreeOptions("medusa", tree.parents, tree.ranks)
        plans[f"Medusa heads {words}"] = HEADS.written(facts, heads)
    for words, tree in OF_MODEL.items():
        model = DraftModelOptions("draft", tree.parents, tree.ranks)
        plans[f"draft model {words}"] = DRAFT_MODEL.written(facts, model)
    deciding, judged = bench.prompts(PROFILE)[:DECIDING], bench.prompts(BENCH)[: asked.prompts]
    tokens = bench.output_tokens
    longest = max(len(one.tokens) for one in (*deciding, *judged))
    ready = {
        name: compiled_timer(bench, "onnxruntime", [(1, longest)], plan)
        for name, plan in plans.items()
    }
    print(f"compiling {len(ready)} plans", flush=True)
    first = speeds(ready, deciding, tokens)
    best = [
        max((name for name in first if name.startswith(kind)), key=first.__getitem__)
        for kind in (PLAIN, "Medusa", "draft")
    ]
    print(f"{'':24}  tokens/s  over {PLAIN}")
    final = speeds({name: ready[name] for name in best}, [*judged, *judged], tokens)
    for name, speed in final.items():
        print(f"{name:24}  {speed:8.0f}  {speed / final[PLAIN]:.2f}x")


def speeds(
    ready: Mapping[str, Timer], prompts: Sequence[TokenPrompt], tokens: int
) -> dict[str, float]:
    """Tokens per second of whole requests, by name; all take turns on every prompt."""
    runs = {name: lambda turn, run=run: run([prompts[turn]]).seconds for name, run in ready.items()}
    for run in runs.values():
        run(0)  # compiles, allocates memory and warms caches
    seconds = seconds_in_turns(runs, len(prompts))
    return {name: tokens * len(prompts) / sum(spent) for name, spent in seconds.items()}


if __name__ == "__main__":
    main()
