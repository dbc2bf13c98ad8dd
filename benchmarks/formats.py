"""How fast is each number format with each kind of plan, by backends that compile rounds?

    python benchmarks/formats.py --work DIR [--backends onnxruntime] [--formats float32] [--priced]

On the reference models and the code task, at temperature 0 and batch 1. Plain decoding, lookups,
and chains and trees by the draft model and by the shipped EAGLE-1 head, in every format, continue
the same prompts; within a prompt the contenders take turns in random order. A row has tokens per
second of whole requests and of decoding (rounds behind the first), tokens per round, and how many
texts are those of plain decoding in the same format: the others part at two tokens of nearly the
same likelihood. Losses are nats per token of held-out text against the first format.

`--priced` measures this machine first (its profiles stay in DIR), and adds to each row what its
plan was priced at before it ran: tokens per second, tokens and seconds of a round, and seconds of
the prompt.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from contests import in_random_turns
from reference_problem import ROOT, dealt_problem
from regret import tell

from specplan.backends.registry import backend_capabilities
from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.gathering import gather, lost_by_formats, open_bench
from specplan.ir.capabilities import refusals
from specplan.ir.files import write_json_atomic
from specplan.ir.plan import Plan
from specplan.measure.bench.contenders import Outcome, Timer, compiled_timer
from specplan.measure.device.probes import plain_plan
from specplan.measure.machine import hardware_name, versions
from specplan.measure.workbench import BENCH
from specplan.planner import ProblemFacts, load_problem
from specplan.planner.drafters.profiles import MEASURED_MATCH
from specplan.planner.method import Method
from specplan.planner.methods.draft_model import METHOD as DRAFT_MODEL
from specplan.planner.methods.draft_model import DraftModelOptions
from specplan.planner.methods.eagle3 import METHOD as EAGLE3
from specplan.planner.methods.lookup_by_match import METHOD as LOOKUP_BY_MATCH
from specplan.planner.methods.lookup_by_match import LookupByMatchOptions
from specplan.planner.methods.prompt_lookup import METHOD as PROMPT_LOOKUP
from specplan.planner.methods.prompt_lookup import PromptLookupOptions
from specplan.planner.templates.head_drafts import HeadTreeOptions
from specplan.planner.trees import chain, expansion_tree
from specplan.problems import each_variant

FORMATS = ("float32", "Q8_0", "Q4_0")
OUTPUT_TOKENS = 128
PLAIN = "no speculation"
LOOKUPS = (1, 2), (1, 5), (3, 8), (4, 12)
"""Shortest matches, and lengths of copies."""
CHAINS, CHAINS_OF_HEADS = (1, 2, 3, 4), (2, 3, 4, 5, 6)
TREES = {f"tree {'-'.join(map(str, one))}": expansion_tree(one) for one in ((2, 1, 1), (3, 2, 1))}


@dataclass
class Contender:
    """One plan in one format by one backend, its price, and what it did."""

    format: str
    backend: str
    plan: str
    timer: Timer
    price: Estimate | None = None

    def row(self, runs: Sequence[Outcome], plain: Sequence[Outcome]) -> dict[str, Any]:
        """Its row in the table, by its runs and those of plain decoding."""
        emitted = sum(len(run.outputs[0]) for run in runs)
        decoding = [run.seconds - (run.first or 0.0) for run in runs]
        rounds = (
            seconds / max(run.rounds - 1, 1) for seconds, run in zip(decoding, runs, strict=True)
        )
        return {
            "format": self.format,
            "backend": self.backend,
            "plan": self.plan,
            "tokens_per_second": emitted / sum(run.seconds for run in runs),
            "decoding_tokens_per_second": (emitted - len(runs)) / sum(decoding),
            "tokens_per_round": emitted / sum(run.rounds for run in runs),
            "same_texts": sum(a.outputs == b.outputs for a, b in zip(runs, plain, strict=True)),
            "round_seconds": median(rounds),
            "prompt_seconds": median(run.prompts or 0.0 for run in runs),
            **priced(self.price),
        }


def priced(price: Estimate | None) -> dict[str, float]:
    """What a row has of a plan's price."""
    if price is None:
        return {}
    return {
        "priced_tokens_per_second": float(price.tokens_per_second.mean),
        "priced_tokens_per_round": float(price.tokens_per_round.mean),
        "priced_round_seconds": float(price.seconds_per_round.median),
        "priced_prompt_seconds": float(price.prefill.median),
    }


def plans_of(facts: ProblemFacts) -> dict[str, tuple[Plan, Drafter | None]]:
    """The plans and who drafts in them, by their words."""
    plans: dict[str, tuple[Plan, Drafter | None]] = {PLAIN: (plain_plan(True), None)}

    def add(words: str, method: Method[Any], options: Any) -> None:
        plans[words] = method.written(facts, options), method.drafter(facts, options)

    longest = MEASURED_MATCH[1]
    for shortest, length in LOOKUPS:
        options = PromptLookupOptions(shortest, longest, length)
        add(f"prompt lookup K={length} after {shortest}", PROMPT_LOOKUP, options)
    by_match = LookupByMatchOptions(3, 6, longest, 3, 16)
    add("prompt lookup by match K=3, 16", LOOKUP_BY_MATCH, by_match)
    for words, tree in [*((f"K={length}", chain(length)) for length in CHAINS), *TREES.items()]:
        by_draft = DraftModelOptions("draft", tree.parents, tree.ranks)
        add(f"draft model {words}", DRAFT_MODEL, by_draft)
    heads = ((f"K={length}", chain(length)) for length in CHAINS_OF_HEADS)
    for words, tree in [*heads, *TREES.items()]:
        by_head = HeadTreeOptions("eagle", tree.parents, tree.ranks)
        add(f"EAGLE-1 head {words}", EAGLE3, by_head)
    return plans


def price_of(facts: ProblemFacts, plan: Plan, drafter: Drafter | None) -> Estimate | None:
    """Of one request of the workload; None where something of the plan has no price."""
    known = facts.profiles[drafter] if drafter is not None else None
    prompt = round(facts.mean_prompt_tokens)
    price = Pricer(facts.device, facts.shapes, 1, prompt, OUTPUT_TOKENS).estimate(plan, known)
    return price if isinstance(price, Estimate) else None


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Compile all, then run them in turns."""
    described = dealt_problem(asked.work, "code", 1, batches=(1,), output_tokens=OUTPUT_TOKENS)
    head = {"name": "eagle", "path": str(ROOT / "examples/reference_models/heads/eagle")}
    described["models"]["drafts"].append(head)
    del described["backend"]
    methods = [one.name for one in (DRAFT_MODEL, EAGLE3, PROMPT_LOOKUP, LOOKUP_BY_MATCH)]
    described |= {"formats": asked.formats, "backends": asked.backends, "methods": methods}
    write_json_atomic(asked.work / "problem.json", described)
    variants = each_variant(load_problem(asked.work / "problem.json"))
    lost = lost_by_formats(variants, tell)
    contenders: list[Contender] = []
    for variant in variants:
        measured = gather(variant, tell) if asked.priced else None
        bench, facts = open_bench(variant)
        prompts = bench.prompts(BENCH)[: asked.prompts]
        longest = max(len(one.tokens) for one in prompts)
        able, format_ = backend_capabilities(variant.backend), variant.models.target.dtype
        for words, (plan, drafter) in plans_of(facts).items():
            if refusals(plan, able):
                continue
            timer = compiled_timer(bench, variant.backend, [(1, longest)], plan)
            price = price_of(measured, plan, drafter) if measured else None
            contenders.append(Contender(format_, variant.backend, words, timer, price))
    ready = {(one.format, one.backend, one.plan): one.timer for one in contenders}
    runs = in_random_turns(ready, prompts)
    rows = [
        one.row(runs[key], runs[one.format, one.backend, PLAIN])
        for key, one in zip(runs, contenders, strict=True)
    ]
    return {
        "rows": rows,
        "losses": {dtype: loss.as_dict() for dtype, loss in lost.items()},
        "prompts": len(prompts),
        "date": date.today().isoformat(),
        "hardware": hardware_name(bench.models["target"].device),
        "versions": versions(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--backends", nargs="+", default=["onnxruntime"])
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--priced", action="store_true", help="also what each plan is priced at")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    result = measure(options)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for row in result["rows"]:
        print(
            "{format:8s} {backend:12s} {plan:22s} {tokens_per_second:6.0f} tokens/s, decoding "
            "{decoding_tokens_per_second:6.0f}, {tokens_per_round:.2f} a round, "
            "{same_texts} texts as without".format_map(row)
        )
    print(json.dumps(result["losses"], indent=1))


if __name__ == "__main__":
    main()
