"""What every method gains and loses that leaves layers out, or judges drafts leniently.

    python benchmarks/exits.py --work DIR [--split 300,150]
    python benchmarks/exits.py --work DIR --timed [--prompts 12] [--repeats 2]
    python benchmarks/exits.py --page

On the reference target, by itself or with the reference draft model, at temperature 0. The first
command measures what settings lose, on any machine however busy: with `outputs_differ` at most 5 %
and a risk of 5 % for all methods together, the settings of each method are tested on the first part
of the prompts and reported on the second (`limits.quality`; the order of the tests and the fastest
settings are those of a data sheet's prices). Of each method two settings are taken: the fastest
that is shown to keep the limit, or where none is, the one of the least bound; and the fastest.
For these it also measures how many tokens are not the target's own after the same text.

The second command, on an idle machine, measures the times of ops, predicts the speed of every
setting that was taken, and runs them all in turns with plain decoding on other prompts. Both write
benchmarks/results/exits.json, which the third puts into docs/quality.md. What is made and measured
is kept in DIR and not done again, but for the times.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from exit_tables import END, METHODS, PAGE, START, section
from exits_problem import OUTPUT_TOKENS, exits_problem
from reference_problem import ROOT
from reporting import every, write_between

from specplan.cost_models.acceptance.drafters import rounds_key
from specplan.cost_models.forecast import Forecast
from specplan.gathering import open_bench
from specplan.ir.files import read_json, write_json_atomic
from specplan.measure.acceptance.profile import measure_acceptance, measure_rounds
from specplan.measure.bench.bench import Line, compare
from specplan.measure.device.profile import measure_device
from specplan.measure.machine import versions
from specplan.measure.quality.calibrate import measure_losses
from specplan.measure.quality.losses import is_replayed
from specplan.measure.workbench import Workbench
from specplan.planner import (
    PLAIN,
    Candidate,
    Problem,
    ProblemFacts,
    SearchResult,
    later_drafters,
    possible_drafters,
)
from specplan.planner.facts import gather_facts
from specplan.planner.quality.front import certificate
from specplan.planner.quality.limit import changes_output, sequences_of
from specplan.planner.search.candidates import estimate_as_dict
from specplan.planner.search.comparing import speedup
from specplan.planner.search.search import search
from specplan.problems import capabilities_of

RESULTS = ROOT / "benchmarks/results/exits.json"
LIMIT = {"measure": "outputs_differ", "at_most": 0.05, "risk": 0.05}
TOKENS = {"measure": "divergence", "at_most": 0.05, "risk": 0.05}
TOKENS_SPLIT = (20, 60)
"""Of these prompts only those of the report count; the others make up a part."""
RUN = {"copied_exit": 3, "policy_exit": 3, "depth_by_position": 2}
"""Settings that are run on all prompts, where a trace does not tell what they lose; else one."""
tell = every(4)


def losses(work: Path, split: tuple[int, int]) -> dict[str, Any]:
    """What settings lose, those taken of each method, and every setting that was tested."""
    problem = exits_problem(work, METHODS, LIMIT, split, tell)
    bench, known = open_bench(problem)
    facts = known_of(bench, known)
    first = search(facts)
    plans = [one.plan for one in tested(problem, first) if one.plan is not None]
    lost = measure_losses(bench, plans, tell, leave_out=True)
    result = search(replace(facts, losses=lost))
    taken = [one for name in METHODS for one in settings_of(result, name)]
    for one in taken:
        assert one.plan is not None, "it has a price"
        measure_rounds(bench, facts, one.plan, progress=tell)
        proof = certificate(result.facts, result.candidates, one)
        if proof is not None and one.admissible:
            proof.save(work / "certificates" / f"{proof.plan}.json")
    return {
        "date": date.today().isoformat(),
        **LIMIT,
        "output_tokens": OUTPUT_TOKENS,
        "calibrated": split[0],
        "reported": split[1],
        "token_prompts": TOKENS_SPLIT[1],
        "rows": tokens_of(work, [row_of(one) for one in taken], taken),
        "tested": [
            {
                "method": one.method,
                "words": one.words,
                "calibrated": one.loss.calibrated,
                "p_value": one.loss.p_value,
                "keeps": one.loss.keeps,
            }
            for members in sequences_of(result.facts, result.candidates)
            for one in members
            if one.loss is not None
        ],
        "versions": versions(),
    }


def known_of(bench: Workbench, known: ProblemFacts) -> ProblemFacts:
    """The problem with the acceptance of all settings, measured on a few prompts; see `losses`."""
    wanted = [*possible_drafters(known), *later_drafters(known)]
    profiles = measure_acceptance(bench, known, progress=tell, precision=1.0, wanted=wanted)
    problem = bench.problem
    return gather_facts(problem, profiles=profiles, capabilities=capabilities_of(problem))


def tested(problem: Problem, searched: SearchResult) -> Iterator[Candidate]:
    """Settings that change the output: all whose losses a trace tells, and a few others a method.

    These (`RUN`) are spread from the fastest to the slowest by their prices.
    """
    quality = problem.limits.quality
    assert quality is not None
    for name in METHODS:
        own = [one for one in of_method(searched, name) if changes_output(one)]
        run = [one for one in own if one.plan and not is_replayed(quality, one.plan)]
        yield from (one for one in own if one.plan and is_replayed(quality, one.plan))
        count = RUN.get(name, 1)
        step = (len(run) - 1) / max(1, count - 1)
        yield from (run[-1 - round(n * step)] for n in range(min(count, len(run))))


def of_method(searched: SearchResult, name: str) -> list[Candidate]:
    """The settings of a method that have a price and run, the slowest first."""
    objective = searched.facts.objective
    own = [one for one in searched.candidates if one.method == name]
    known = [one for one in own if one.priced and one.unsupported is None and not one.by_cell]
    return sorted(known, key=lambda one: speedup(one, searched.plain, objective).mean)


def settings_of(searched: SearchResult, name: str) -> list[Candidate]:
    """The settings that are taken of a method; see the module."""
    own = of_method(searched, name)
    exact = [one for one in own if not changes_output(one)]
    if exact:
        return exact[-1:]
    known = [one for one in own if one.loss is not None]
    keeping = [one for one in known if one.admissible]
    least = min(known[::-1], key=lambda one: one.loss.bound if one.loss else 1.0)
    first = keeping[-1] if keeping else least
    return [first] if first is known[-1] else [first, known[-1]]


def row_of(one: Candidate) -> dict[str, Any]:
    """A setting and what it loses."""
    assert one.plan is not None, "it has a price"
    loss = None if one.loss is None else asdict(one.loss)
    keeps = one.loss is None or one.admissible
    named = {"method": one.method, "words": one.words, "key": rounds_key(one.plan)}
    return {**named, "options": dict(one.options), "loss": loss, "keeps": keeps}


def tokens_of(
    work: Path, rows: Sequence[dict[str, Any]], taken: Sequence[Candidate]
) -> list[dict[str, Any]]:
    """The rows with the share of tokens that are not the target's own after the same text."""
    problem = exits_problem(work, METHODS, TOKENS, TOKENS_SPLIT, tell)
    bench, _ = open_bench(problem)
    plans = [one.plan for one in taken if one.loss is not None and one.plan is not None]
    lost = measure_losses(bench, plans, tell)
    shares = {key: one.mean for key, one in lost.items()}
    return [row | {"tokens_differ": shares.get(row["key"], 0.0)} for row in rows]


def timed(work: Path, data: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """Losses with the measured and the predicted speed of each row."""
    split = data["calibrated"], data["reported"]
    problem = exits_problem(work, METHODS, LIMIT, split, tell)
    bench, known = open_bench(problem)
    device = measure_device(bench, known, progress=tell, passes=asked.passes)
    result = search(replace(known_of(bench, known), device=device))
    wanted = {row["key"] for row in data["rows"]}
    plans = {PLAIN: result.plain} | {
        rounds_key(one.plan): one
        for one in result.candidates
        if one.plan is not None and rounds_key(one.plan) in wanted
    }
    forecasts = {
        key: (one.plan, forecast_of(one)) for key, one in plans.items() if one.plan is not None
    }
    comparison = compare(
        bench, forecasts, limit=asked.prompts, repeats=asked.repeats, stock=False, progress=tell
    )
    plain = comparison.line(PLAIN)
    rows = [row | speeds(comparison.line(row["key"]), plain) for row in data["rows"]]
    return {
        **data,
        "rows": rows,
        "timed": {
            "date": date.today().isoformat(),
            "prompts": comparison.prompts,
            "repeats": asked.repeats,
            "plain_tokens_per_second": plain.tokens_per_second,
            "hardware": comparison.hardware,
            "versions": dict(comparison.versions),
        },
    }


def forecast_of(one: Candidate) -> Forecast | None:
    """What is predicted for a setting; None where the measured device has no price for it."""
    return Forecast.from_dict(estimate_as_dict(one.estimates[0])) if one.priced else None


def speeds(line: Line, plain: Line) -> dict[str, Any]:
    """Over plain decoding as measured, the median over prompts, and as predicted."""
    assert plain.predicted is not None
    predicted = None if line.predicted is None else float(line.predicted.mean)
    return {
        "tokens_per_round": line.tokens_per_round,
        "tokens_per_second": line.tokens_per_second,
        "predicted_tokens_per_second": predicted,
        "ratio": line.against_baseline,
        "predicted_ratio": None if predicted is None else predicted / float(plain.predicted.mean),
        "differing": line.differing,
    }


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / ".work/exits")
    parser.add_argument("--split", default="300,150", metavar="CALIBRATE,REPORT")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--prompts", type=int, default=12, help="that are timed")
    parser.add_argument("--repeats", type=int, default=2, help="of each timed prompt")
    parser.add_argument(
        "--passes", type=int, default=4, help="over the ops whose times are measured"
    )
    parser.add_argument("--page", action="store_true", help="write docs/quality.md, nothing else")
    options = parser.parse_args()
    if options.page:
        write_between(PAGE, START, section(read_json(RESULTS, "results of exits")), END)
        return
    calibrated, reported = map(int, options.split.split(","))
    work = options.work.resolve()
    stored = work / "losses.json"
    if options.timed:
        data = timed(work, read_json(stored, "losses"), options)
    else:
        data = losses(work, (calibrated, reported))
        write_json_atomic(stored, data)
    write_json_atomic(RESULTS, data)
    print(section(data))


if __name__ == "__main__":
    main()
