"""How much of the shorter lanes the longest hides on this machine.

Rounds of a plan with lanes run on the same prompts, once with the lanes concurrently and once with
one lane after another. The overlap is the time saved over the time of all lanes but the longest.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from statistics import median

from specplan.backends.eager.backend import EagerExecutable
from specplan.backends.eager.lanes import lanes_of, room_for
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.cost_models.rounds.demands import OpDemand, round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.ir.plan import Plan
from specplan.measure.bench.interleave import seconds_in_turns
from specplan.measure.device.time_probe import requests_of
from specplan.measure.workbench import Workbench
from specplan.planner import ProblemFacts
from specplan.runtime.generate import generate

TURNS = 7
"""Pairs of runs, lanes concurrently and one after another."""


def runs_at_once(bench: Workbench, plan: Plan) -> bool:
    """Whether the interpreter runs lanes of a plan concurrently here."""
    groups = lanes_of(plan, bench.models).values()
    device = bench.models["target"].device
    return any(room_for(len(group), device) for group in groups)


def lane_overlap(
    bench: Workbench, facts: ProblemFacts, plan: Plan, table: MeasuredTable, cell: tuple[int, int]
) -> float:
    """The part of the shorter lanes that the longest hides, 0 to 1, the median over turns.

    Args:
        bench: the problem's models.
        facts: their shapes.
        plan: of one round, with lanes.
        table: has the times of all steps of the round.
        cell: batch and context in tokens.
    """
    executable = bench.compile(plan)
    if not isinstance(executable, EagerExecutable):
        return 0.0

    def seconds(concurrently: bool, turn: int) -> float:
        executable.side_by_side = concurrently
        requests = requests_of(bench, *cell, seed=turn)
        return generate(executable, requests).seconds_per_round

    runs = {concurrently: partial(seconds, concurrently) for concurrently in (False, True)}
    times = seconds_in_turns(runs, TURNS + 1)  # the first one warms up
    saved = [alone - both for alone, both in zip(times[False], times[True], strict=True)][1:]
    return min(max(median(saved) / _shorter_lanes(facts, plan, table, cell), 0.0), 1.0)


def _shorter_lanes(
    facts: ProblemFacts, plan: Plan, table: MeasuredTable, cell: tuple[int, int]
) -> float:
    """Seconds of all lanes of a round but the longest."""
    pricer = RoundPricer(MeasuredDevice(table), facts.shapes, *cell)
    lanes: defaultdict[str, float] = defaultdict(float)
    for step in round_demands(plan, plan.rounds[0]).steps:
        if step.lane is not None:
            time = pricer.op(step) if isinstance(step, OpDemand) else pricer.forward(step, 0.0)
            lanes[step.lane] += time.median
    return sum(lanes.values()) - max(lanes.values())
