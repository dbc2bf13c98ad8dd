"""Plain decoding on several backends and in several number formats, in turns.

Each of them was measured at a moment of its own, and a machine's speed changes between such
moments. What plain decoding takes in turns sets their prices right (`planner.measured.correcting`)
before they are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean, median, stdev

from specplan.backends.registry import round_backends
from specplan.cost_models.intervals import HALF_WIDTH_90
from specplan.measure.bench.contenders import compiled
from specplan.measure.bench.interleave import seconds_in_turns
from specplan.measure.progress import Progress
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.planner import (
    MeasuredPlan,
    MeasuredPlans,
    ProblemFacts,
    plain_plan,
    plan_key,
)
from specplan.runtime.generate import Generation, generate

TURNS = 7
SECONDS = 1.0
"""Of a turn without its prompt, about."""
FEWEST, MOST = 8, 64
"""Tokens that a turn emits."""


def plain_in_turns(
    variants: Mapping[str, tuple[Workbench, ProblemFacts]], progress: Progress
) -> dict[str, MeasuredPlans]:
    """Plain decoding of every variant at the problem's first load, prompts of its length.

    Args:
        variants: by label; their models are in memory at once.
        progress: called with what is compiled.

    Raises:
        MissingCapabilityError: a backend cannot run here.
    """
    runs: dict[str, Callable[[int], float]] = {}
    for number, (label, (bench, facts)) in enumerate(variants.items()):
        progress("comparing backends and formats", number, len(variants))
        runs[label] = _run(bench, facts)
    seconds = seconds_in_turns(runs, TURNS)
    progress("comparing backends and formats", len(variants), len(variants))
    return {label: _measured(facts, seconds[label]) for label, (_, facts) in variants.items()}


def _run(bench: Workbench, facts: ProblemFacts) -> Callable[[int], float]:
    """What gives the seconds per token of a request at the load, by the number of a turn."""
    batch, length = _load(facts)
    prompt = TokenPrompt("", tuple(n % facts.target.vocab_size for n in range(length)))
    outputs = bench.output_tokens
    plan, *_ = plain_plan(facts)
    compiles = bench.problem.backend in round_backends()
    executable = (
        compiled(bench, bench.problem.backend, [(batch, length)], plan)
        if compiles
        else bench.compile(plan)
    )

    def decoded(tokens: int) -> Generation:
        request = bench.request(prompt, bench.problem.seed, max_new_tokens=tokens, grammar=None)
        return generate(executable, [request] * batch)

    few = min(FEWEST, outputs)
    decoded(few)  # compiles what is made when it is first needed
    wanted = round(SECONDS * few / decoded(few).decode_seconds)
    count = min(max(wanted, few), MOST, outputs)

    def run(turn: int) -> float:
        done = decoded(count)
        return done.prefill_seconds / outputs + done.decode_seconds / count

    return run


def _load(facts: ProblemFacts) -> tuple[int, int]:
    """Batch size, and tokens of each prompt."""
    return facts.batch_sizes[0], facts.prompt_lengths[0]


def _measured(facts: ProblemFacts, seconds: list[float]) -> MeasuredPlans:
    batch, length = _load(facts)
    plan, method, words = plain_plan(facts)
    return MeasuredPlans((
        MeasuredPlan(
            plan=plan_key(plan),
            method=method,
            family="plain",
            words=words,
            point={},
            batch=batch,
            prompt_tokens=length,
            seconds_per_token=median(seconds),
            error=HALF_WIDTH_90 * stdev(seconds) / len(seconds) ** 0.5 / mean(seconds),
            shared=0.0,
            tokens_per_round=1.0,
            turns=len(seconds),
        ),
    ))  # fmt: skip
