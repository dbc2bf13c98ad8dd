"""How much of the shorter lanes the longest hides, on this machine.

Rounds of a plan with lanes are run on the same prompts with the lanes at once and in turns; what is
saved, over the time of all lanes but the longest, is the overlap.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from specplan.backends.eager.backend import EagerExecutable
from specplan.backends.eager.lanes import lanes_of, room_for
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.cost_models.rounds.demands import OpDemand, round_demands
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.ir.plan import Plan
from specplan.measure.device.visits import requests_of
from specplan.measure.workbench import Workbench
from specplan.planner import ProblemFacts
from specplan.runtime.generate import generate

TURNS = 7
"""Pairs of runs, lanes at once and in turns."""


def runs_at_once(bench: Workbench, plan: Plan) -> bool:
    """Whether the interpreter runs lanes of a plan at once here."""
    groups = lanes_of(plan, bench.models).values()
    device = bench.models["target"].device
    return any(room_for(len(group), device) for group in groups)


def lane_overlap(
    bench: Workbench, facts: ProblemFacts, plan: Plan, table: MeasuredTable, cell: tuple[int, int]
) -> float:
    """The part of the shorter lanes that the longest hides, 0 to 1, the median over some turns.

    Args:
        bench: the problem's models.
        facts: their shapes.
        plan: of one round, with lanes.
        table: holds times of all that the round asks for.
        cell: batch and context in tokens.
    """
    executable = bench.compile(plan)
    if not isinstance(executable, EagerExecutable):
        return 0.0
    shorter = _shorter_lanes(facts, plan, table, cell)
    saved = []
    for turn in range(TURNS + 1):  # the first one warms up
        requests, seconds = requests_of(bench, *cell, seed=turn), {}
        for at_once in (False, True) if turn % 2 else (True, False):
            executable.side_by_side = at_once
            seconds[at_once] = generate(executable, requests).seconds_per_round
        saved += [seconds[False] - seconds[True]] if turn else []
    return min(max(median(saved) / shorter, 0.0), 1.0)


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
