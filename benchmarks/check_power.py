"""How often does `specplan check speed` decide rightly, and how soon?

    python benchmarks/check_power.py record --bundle DIR --out FILE [--minutes 10]
    python benchmarks/check_power.py replay FILE [--trials 1000]
    python benchmarks/check_power.py live --bundle DIR --out FILE [--trials 10]

`record` runs a bundle against itself, pair by pair, and stores what every run took. `replay` races
on such a record, many times: pass_specs of consecutive pairs are drawn at random (a circular block
bootstrap, Politis and Romano 1992), so that the machine's spells stay as long as they were, and the
head's runs take 0 % or 5 % longer. `live` races for real: the head spins for 0 % or 5 % of the time
of each of its runs before it returns. All is decided by the code of `specplan check speed`.
Results are JSON on stdout; `live` stores each trial when it is done, and goes on from there.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from specplan.checks.running import Load, count_groups, opened, run_bundle
from specplan.checks.speed import SECONDS
from specplan.ir.files import read_json, write_json_atomic
from specplan.measure.bench.interleave import Pair, RaceResult, Run, Turn, pairs, race
from specplan.measure.bench.sequential import ERROR, Rule
from specplan.measure.machine import hardware_name, versions
from specplan.measure.workbench import Workbench

BLOCK = 10
"""Consecutive pairs that stay together in a replay."""


@dataclass
class Tape:
    """Recorded runs, played back on a clock of their own.

    Attributes:
        rows: seconds and tokens of the first and of the second run of each pair.
        draws: where each spec starts.
        now: seconds played.
        left: runs of the spec that is being played.
    """

    rows: Sequence[Sequence[float]]
    draws: random.Random
    now: float = 0.0
    left: list[tuple[float, int]] = field(default_factory=list)

    def clock(self) -> float:
        """Seconds played."""
        return self.now

    def program(self, slowdown: float) -> Run:
        """A program that takes what the next recorded run took, and so much more."""

        def run(group: int) -> Turn:
            if not self.left:
                start = self.draws.randrange(len(self.rows))
                spec = [self.rows[(start + i) % len(self.rows)] for i in range(BLOCK)]
                self.left = [(row[i], int(row[i + 1])) for row in spec for i in (0, 2)]
            seconds, tokens = self.left.pop(0)
            self.now += seconds * (1.0 + slowdown)
            return Turn(seconds * (1.0 + slowdown), tokens)

        return run


def replay(rows: Sequence[Sequence[float]], slowdown: float, options: Any) -> dict[str, Any]:
    """Race on a record many times."""
    outcomes = []
    for trial in range(options.trials):
        tape = Tape(rows, random.Random(f"{options.seed} {slowdown} {trial}"))
        base, head = tape.program(0.0), tape.program(slowdown)
        rule = Rule(options.threshold, options.error)
        raced = race(base, head, 1, rule, seconds=options.seconds, seed=trial, clock=tape.clock)
        outcomes.append(outcome(raced, slowdown))
    return summary(outcomes)


def outcome(raced: RaceResult, slowdown: float) -> dict[str, Any]:
    """What is kept of a race."""
    judged = raced.judgement
    return {
        "slowdown": slowdown,
        "verdict": judged.verdict,
        "sure": judged.sure,
        "ratio": judged.ratio,
        "pairs": judged.pairs,
        "seconds": raced.seconds,
    }


def summary(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares of the verdicts, and what the decisions took."""
    verdicts = [trial["verdict"] for trial in trials]
    shares = {v: verdicts.count(v) / len(trials) for v in ("slower", "not slower", "undecided")}
    statistics: dict[str, Any] = {"trials": len(trials), "shares": shares}
    statistics["sure"] = float(np.mean([trial["sure"] for trial in trials]))
    for what in ("pairs", "seconds", "ratio"):
        numbers = [trial[what] for trial in trials]
        low, middle, high = np.quantile(numbers, (0.05, 0.5, 0.95))
        statistics[what] = {"p5": low, "median": middle, "p95": high, "most": max(numbers)}
    return statistics


def sides(options: Any) -> tuple[Run, Run, int]:
    """The bundle twice, each with models of its own, and how many groups of prompts there are."""
    bundle, load = opened(options.bundle), Load(options.batch, options.output_tokens)
    problem = load.problem(bundle)
    first, second = (run_bundle(Workbench(problem), bundle, load) for _ in range(2))
    return first, second, count_groups(problem, load)


def record(options: Any) -> dict[str, Any]:
    """Run a bundle against itself for some minutes."""
    base, head, groups = sides(options)
    source, start = pairs(base, head, groups, options.seed), time.perf_counter()
    rows: list[list[float]] = []
    next(source)
    while time.perf_counter() - start < 60.0 * options.minutes or not rows:
        rows.append(_row(next(source)))
    return {
        "hardware": hardware_name(),
        "versions": versions(),
        "batch": options.batch,
        "columns": ["seconds of first", "tokens", "seconds of second", "tokens", "group"],
        "rows": rows,
    }


def _row(pair: Pair) -> list[float]:
    first, second = (pair.head, pair.base) if pair.head_first else (pair.base, pair.head)
    return [first.seconds, first.tokens, second.seconds, second.tokens, pair.group]


def spinning(run: Run, slowdown: float) -> Run:
    """A run, and then work of a part of its time."""

    def slower(group: int) -> Turn:
        turn = run(group)
        start = time.perf_counter()
        while time.perf_counter() - start < slowdown * turn.seconds:
            pass
        return replace(turn, seconds=turn.seconds + time.perf_counter() - start)

    return slower


def live(options: Any) -> dict[str, Any]:
    """Race for real, both kinds in turn; what an earlier run stored is kept."""
    trials = read_json(options.out, "trials") if options.out.is_file() else []
    base, head, groups = sides(options)
    for number in range(len(trials), 2 * options.trials):
        slowdown = (0.0, options.slowdown)[number % 2]
        raced = race(
            base,
            spinning(head, slowdown),
            groups,
            Rule(options.threshold, options.error),
            seconds=options.seconds,
            seed=options.seed + number,
        )
        trials.append(outcome(raced, slowdown))
        write_json_atomic(options.out, trials)
        print(json.dumps(trials[-1]), file=sys.stderr)
    return by_slowdown(trials)


def by_slowdown(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summaries of trials of each kind."""
    kinds = sorted({trial["slowdown"] for trial in trials})
    return {f"{k:.1%}": summary([t for t in trials if t["slowdown"] == k]) for k in kinds}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "replay", "live"):
        command = commands.add_parser(name)
        command.add_argument("--seed", type=int, default=1)
        if name == "replay":
            command.add_argument("tape", type=Path)
        else:
            command.add_argument("--bundle", type=Path, required=True)
            command.add_argument("--out", type=Path, required=True)
            command.add_argument("--batch", type=int, default=1)
            command.add_argument("--output-tokens", type=int)
        if name == "record":
            command.add_argument("--minutes", type=float, default=10.0)
        else:
            command.add_argument("--trials", type=int, default=1000 if name == "replay" else 10)
            command.add_argument("--slowdown", type=float, default=0.05, help="that is injected")
            command.add_argument("--threshold", type=float, default=0.05, help="to be caught")
            command.add_argument("--error", type=float, default=ERROR)
            command.add_argument("--seconds", type=float, default=SECONDS, help="per decision")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do as asked, and print JSON."""
    options = parse(arguments)
    if options.command == "record":
        recorded = record(options)
        write_json_atomic(options.out, recorded)
        spread = _spread(recorded["rows"])
    elif options.command == "replay":
        tape = read_json(options.tape, "recorded timings")
        spread = _spread(tape["rows"])
        spread |= {
            f"{slowdown:.1%}": replay(tape["rows"], slowdown, options)
            for slowdown in (0.0, options.slowdown)
        }
    else:
        spread = live(options)
    print(json.dumps(spread))


def _spread(rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    """How noisy a record is: seconds of a run, and log ratios of the two runs of a pair."""
    table = np.array(rows, dtype=np.float64)
    ratios = np.log(table[:, 2] / table[:, 3]) - np.log(table[:, 0] / table[:, 1])
    return {
        "recorded_pairs": len(rows),
        "median_seconds_of_a_run": float(np.median(table[:, [0, 2]])),
        "usual_log_ratio": float(1.4826 * np.median(np.abs(ratios - np.median(ratios)))),
        "p99_log_ratio": float(np.quantile(np.abs(ratios), 0.99)),
        "median_log_ratio_second_over_first": float(np.median(ratios)),
    }


if __name__ == "__main__":
    main()
