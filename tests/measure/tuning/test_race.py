"""Contests among priced plans, with recorded times in place of runs: what they decide, and when."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("optuna")

from specplan.ir.errors import NothingToCompareError
from specplan.ir.plan import Plan
from specplan.measure.bench.contenders import Outcome, Timer
from specplan.measure.tuning import contenders
from specplan.measure.tuning.contenders import Contenders
from specplan.measure.tuning.outcome import lines, measured_plans
from specplan.measure.tuning.race import Race
from specplan.measure.tuning.study import Trial, TrialLog, open_log
from specplan.measure.workbench import TokenPrompt
from specplan.planner import SearchResult, plan_key, search, tuned
from tests.planner.example_facts import example_facts, workload

PROMPTS = [TokenPrompt(f"p{i}", tuple(range(1, 41))) for i in range(12)]
OUTPUT, ROUNDS = 32, 16
KILLS = 50
Timers = Callable[[Plan], Timer]


class Killed(BaseException):
    """Ends a contest at any moment, as a signal does."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """A search on one load."""
    return search(
        example_facts(tmp_path_factory.mktemp("problem"), workload=workload(batch_sizes=[2]))
    )


def recorded(
    result: SearchResult, noise: float = 0.03, tick: Callable[[], None] = lambda: None
) -> Timers:
    """Seconds that follow from plan and prompts alone: prices that are wrong, and noise.

    All prices of a family are wrong by the same tenth or so, and each by some per cent beside; the
    noise of a group of prompts falls on all plans, and some on each.
    """
    prices = Contenders(result)
    (load,) = prices.loads
    least = min(prices.seconds(key, load) for key in prices.tried)

    def of_plan(plan: Plan) -> Timer:
        key = plan_key(plan)
        price = prices.seconds(key, load) if key in prices else least
        family = prices[key].family if key in prices else plan.name
        wrong = random.Random(family).gauss(0.0, 0.1) + random.Random(key).gauss(0.0, 0.04)

        def run(prompts: Sequence[TokenPrompt]) -> Outcome:
            tick()
            names = " ".join(prompt.id for prompt in prompts)
            draw = random.Random(names).gauss(0.0, 2.0 * noise)
            own = random.Random(f"{key} {names}").gauss(0.0, noise)
            outputs = tuple((1,) * OUTPUT for _ in prompts)
            seconds = price * float(np.exp(wrong + draw + own))
            tick()
            return Outcome(seconds, None, outputs, ROUNDS * len(prompts))

        return run

    return of_plan


def contest(result: SearchResult, log: TrialLog, timers: Timers, runs: float) -> Race:
    """A contest whose budget is that of so many runs of the plan that the search chose."""
    seconds = result.chosen.estimates[0].request_seconds.median
    return Race(
        contenders=Contenders(result),
        log=log,
        timer=timers,
        prompts=PROMPTS,
        machine="here",
        budget=runs * seconds,
    )


def leader_of(run: Race, trials: Sequence[Trial]) -> str:
    (load,) = run.contenders.loads
    keys, standing = run.standing(load, trials)
    return keys[standing.leader]


def test_it_finds_what_is_fastest(searched: SearchResult, tmp_path: Path) -> None:
    log = open_log(None, tmp_path / "journal.log", "study")
    run = contest(searched, log, recorded(searched), 200)
    run.run()
    exact = recorded(searched, noise=0.0)
    names = dict.fromkeys([*run.contenders.tried, *(trial.plan for trial in log.trials())])
    alone = {key: exact(run.contenders[key].plan)(PROMPTS[:2]).seconds for key in names}
    best, leader = min(alone.values()), leader_of(run, log.trials())
    assert alone[leader] <= 1.02 * best
    assert alone[plan_key(searched.chosen.plan)] > 1.05 * best, "or there was nothing to find"
    assert any(trial.point for trial in log.trials()), "settings beside those of the search ran"
    ranking = lines(run, log.trials())
    assert ranking[0].leads and ranking[0].plan == leader and ranking[0].ratio == 1.0
    assert [line.ratio for line in ranking] == sorted(line.ratio for line in ranking)


def test_killed_at_any_moment_it_ends_in_the_same_answer(
    searched: SearchResult, tmp_path: Path
) -> None:
    whole = open_log(None, tmp_path / "whole.log", "study")
    undisturbed = contest(searched, whole, recorded(searched), 60)
    undisturbed.run()
    chance, path, finished = random.Random(3), tmp_path / "killed.log", 0
    for kill in range(KILLS + 1):
        left = chance.randrange(12) if kill < KILLS else 1 << 30

        def tick() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        log = open_log(None, path, "study")
        assert len(log.trials()) >= finished, "no finished trial is lost"
        finished = len(log.trials())
        try:
            contest(searched, log, recorded(searched, tick=tick), 60).run()
        except Killed:
            finished = len(log.trials())
    assert log.trials() == whole.trials()
    assert leader_of(undisturbed, log.trials()) == leader_of(undisturbed, whole.trials())
    assert len(whole.trials()) > 20


def compiled(timers: Timers, seconds: float) -> Timers:
    """The first run of a plan with so many requests takes that much longer."""

    def of_plan(plan: Plan) -> Timer:
        run, seen = timers(plan), set[int]()

        def slow_first(prompts: Sequence[TokenPrompt]) -> Outcome:
            once = run(prompts)
            more = 0.0 if len(prompts) in seen else seconds
            seen.add(len(prompts))
            return replace(once, seconds=once.seconds + more)

        return slow_first

    return of_plan


def test_what_the_first_compilation_took_tells_how_many_enter(
    searched: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain decoding runs first; a race that was killed there goes on with the same contenders."""
    monkeypatch.setattr(contenders, "LEAST", 1)
    run_seconds, entered = searched.chosen.estimates[0].request_seconds.median, []
    for compiling in (0.0, 20.0):  # over a run
        timers = compiled(recorded(searched), compiling * run_seconds)
        trials = []
        for kills in (False, True):
            log = open_log(None, tmp_path / f"{compiling} {kills}.log", "study")
            run = replace(contest(searched, log, timers, 30), compiles=True)
            if kills:
                run.timer = dying_after(timers, 1)
                with pytest.raises(Killed):
                    run.run()
                (first,) = log.trials()
                assert first.plan == run.contenders.plain and first.turn == 0
                run = replace(run, timer=timers)
            run.run()
            trials.append(log.trials())
        assert trials[0] == trials[1]
        assert run.compiling == pytest.approx(compiling * run_seconds, abs=1e-12)
        warm = {trial.plan: trial for trial in reversed(trials[0])}
        assert all(one.warming > compiling * run_seconds for one in warm.values())
        assert all(one.seconds < 5.0 * run_seconds for one in trials[0])
        (load,) = run.contenders.loads
        entered.append(len(run.entrants[load]))
    assert entered[0] > entered[1] == 2, "the likeliest, and plain decoding"


def dying_after(timers: Timers, plans: int) -> Timers:
    """Timers of so many plans; the next one ends the contest."""
    left = [None] * plans

    def of_plan(plan: Plan) -> Timer:
        if not left:
            raise Killed
        left.pop()
        return timers(plan)

    return of_plan


def test_no_run_that_counts_compiles_at_any_load(tmp_path: Path) -> None:
    """A plan is compiled anew for each batch size."""
    loads = search(example_facts(tmp_path, workload=workload(batch_sizes=[2, 4])))

    def timers(_: Plan) -> Timer:
        return lambda prompts: Outcome(1.0, None, ((1,) * OUTPUT,) * len(prompts), ROUNDS)

    run = contest(loads, open_log(None, tmp_path / "log", "study"), compiled(timers, 9.0), 1e9)
    run = replace(run, compiles=True, budget=60.0)
    run.run()
    trials = run.log.trials()
    assert {trial.batch for trial in trials} == {2, 4} and {t.seconds for t in trials} == {1.0}
    first = {(trial.plan, trial.batch): trial.warming for trial in reversed(trials)}
    assert set(first.values()) == {10.0} and sum(t.warming > 0 for t in trials) == len(first)


def test_an_interrupt_while_a_trial_is_recorded_loses_no_trial(
    searched: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna counts a line of its journal as read before it applies it."""
    from optuna.storages.journal._storage import JournalStorageReplayResult as Replay

    applied, count = Replay._apply_create_trial, 0

    def interrupt(replay: Replay, line: dict[str, object]) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        applied(replay, line)

    monkeypatch.setattr(Replay, "_apply_create_trial", interrupt)
    run = contest(
        searched,
        open_log(None, tmp_path / "journal.log", "study"),
        recorded(searched),
        60,
    )
    assert run.interrupted() and len(run.log.trials()) == 3


def test_it_stops_when_the_budget_is_spent_and_goes_on_with_more(
    searched: SearchResult, tmp_path: Path
) -> None:
    log = open_log(None, tmp_path / "journal.log", "study")
    contest(searched, log, recorded(searched), 8).run()
    first = log.trials()
    contest(searched, log, recorded(searched), 8).run()
    assert log.trials() == first, "nothing is left of this budget"
    more = contest(searched, log, recorded(searched), 16)
    more.run()
    assert log.trials()[: len(first)] == first and len(log.trials()) > len(first)
    assert more.spent(log.trials()) < 17 * searched.plain.estimates[0].request_seconds.median
    assert {trial.turn for trial in first} <= {trial.turn for trial in log.trials()}


def test_what_ran_at_other_loads_of_a_study_is_left_alone(
    searched: SearchResult, tmp_path: Path
) -> None:
    """A problem with another batch size goes on in the same study: on a budget of its own."""
    log = open_log(None, tmp_path / "journal.log", "study")
    contest(searched, log, recorded(searched), 8).run()
    before = log.trials()
    other = search(example_facts(tmp_path, workload=workload(batch_sizes=[4])))
    progress: list[str] = []
    run = contest(other, log, recorded(other), 8)
    run.progress = lambda words, *_: progress.append(words)
    assert run.spent(before) == 0.0
    run.run()
    after = log.trials()
    assert after[: len(before)] == before
    assert {trial.load for trial in after[len(before) :]} == set(run.contenders.loads)
    assert "best so far" not in progress[0] and "best so far" in progress[-1]


def test_machines_share_a_study(searched: SearchResult, tmp_path: Path) -> None:
    """One machine is half as fast: its turns are compared within themselves."""
    timers = recorded(searched)

    def slow(plan: Plan) -> Timer:
        def run(prompts: Sequence[TokenPrompt]) -> Outcome:
            once = timers(plan)(prompts)
            return Outcome(2.0 * once.seconds, None, once.outputs, once.rounds)

        return run

    url = f"sqlite:///{tmp_path / 'study.db'}"
    for budget in (6, 12):
        for name, speed, times in (("first", timers, 1), ("second", slow, 2)):
            log = open_log(url, tmp_path / "unused.log", "study")
            run = contest(searched, log, speed, budget * times)
            run.machine = name
            run.run()
    trials = log.trials()
    assert {trial.machine for trial in trials} == {"first", "second"}
    assert not (tmp_path / "unused.log").exists()
    (load,) = run.contenders.loads
    keys, standing = run.standing(load, trials)
    assert standing.turns.sum() == len(trials)
    exact = recorded(searched, noise=0.0)
    alone = [exact(run.contenders[key].plan)(PROMPTS[:2]).seconds for key in keys]
    ratio = np.log(np.array(alone) / alone[standing.leader])
    often = standing.turns >= 2
    assert often.sum() >= 2
    np.testing.assert_allclose(standing.ratio[often], ratio[often], atol=0.08)


def test_the_choice_is_the_leader_with_its_measured_speed(
    searched: SearchResult, tmp_path: Path
) -> None:
    log = open_log(None, tmp_path / "journal.log", "study")
    run = contest(searched, log, recorded(searched), 60)
    run.run()
    plans = measured_plans(run, log.trials(), {})
    answer = tuned(searched, plans, run.contenders.untried)
    leader = leader_of(run, log.trials())
    assert plan_key(answer.chosen.plan) == leader
    mine = [trial for trial in log.trials() if trial.plan == leader]
    measured = sum(t.seconds for t in mine) / len(mine)
    (estimate,) = answer.chosen.estimates
    assert estimate.request_seconds.median == pytest.approx(measured, rel=0.15)
    assert estimate.tokens_per_round.mean == pytest.approx(OUTPUT / ROUNDS)
    assert estimate.measured and estimate.request_seconds.low < measured
    assert answer.plain.estimate is not None and answer.speedup.mean > 1.0
    assert answer.confidence.probability_best > 0.5


def test_more_requests_than_prompts_are_refused(searched: SearchResult, tmp_path: Path) -> None:
    run = contest(searched, open_log(None, tmp_path / "log", "study"), recorded(searched), 1.0)
    with pytest.raises(NothingToCompareError, match="1 prompts do not fill a batch of 2"):
        replace(run, prompts=PROMPTS[:1])
