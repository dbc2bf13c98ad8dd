"""Is a bundle slower than before? Base and head run in turns until a sequential test decides."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from specplan.backends.bundle import Bundle
from specplan.checks.baseline import Baseline, about, both_runs, check_comparable
from specplan.checks.findings import Finding, Findings, Metric, Status
from specplan.checks.running import ONE, Load, count_groups, opened, run_bundle, run_there
from specplan.checks.side import Side
from specplan.ir.errors import NothingToCompareError, UsageError
from specplan.measure.bench.sequential import Judgement, Rule
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.measure.bench.interleave import RaceResult, Run

SECONDS = 150.0
"""Time for the warm-up and all pairs; a decision takes under 3 minutes with loading."""


@dataclass(frozen=True)
class SpeedTest:
    """A speed test and its budget.

    Attributes:
        rule: the slow-down to detect, and the error rate.
        load: of every run.
        seconds: time budget, loading not included.
        seed: of the order.
        strict: an undecided test is a regression.
    """

    rule: Rule = field(default_factory=Rule)
    load: Load = ONE
    seconds: float = SECONDS
    seed: int = 0
    strict: bool = False

    def race(
        self, base: Run, head: Run, groups: int, expected: tuple[float, ...], progress: Progress
    ) -> RaceResult:
        """Run the two until the test decides."""
        from specplan.measure.bench.interleave import race

        return race(
            base,
            head,
            groups,
            self.rule,
            seconds=self.seconds,
            seed=self.seed,
            expected=expected,
            progress=progress,
        )


def check_speed(
    head: Bundle | Path | str,
    *,
    base: Path | None = None,
    base_python: Path | None = None,
    baseline: Path | None = None,
    test: SpeedTest = SpeedTest(),
    progress: Progress = silent,
) -> Findings:
    """Race a bundle against another one, another version of specplan, or a stored baseline.

    Args:
        head: the bundle that may have become slower, or its folder.
        base: the bundle to compare with; None with `base_python` for the same one.
        base_python: Python of an environment with another version of specplan to run the base.
        baseline: a file of `measure_baseline` instead of a base; its load is run.
        test: the test.
        progress: called with the seconds used.

    Raises:
        NothingToCompareError: no base is given, or the baseline is of something else.
        UsageError: a bundle or checkpoint has changed, or both a base and a baseline are given.
        MissingCapabilityError: running models needs an extra.
    """
    from specplan.runtime import require_torch

    require_torch()
    if baseline is not None and (base is not None or base_python is not None):
        raise UsageError(
            "a base and a stored baseline are both given",
            where="specplan check speed",
            remedy="Keep --base and --base-python, or --baseline.",
        )
    bundle = opened(head)
    if baseline is not None:
        stored = Baseline.load(baseline)
        raced = _against_baseline(bundle, stored, baseline, test, progress)
        against = f"plain decoding, by the baseline {baseline} ({stored.hardware})"
        return Findings("speed", (_finding(bundle, raced, against, test, stored.batch),))
    if base_python is not None:
        raced, against = _against_version(bundle, base, base_python, test, progress)
    elif base is not None:
        raced, against = _against_bundle(bundle, base, test, progress), f"bundle {base}"
    else:
        raise NothingToCompareError(
            "there is nothing to compare with",
            where="specplan check speed",
            remedy="Give --base DIR, --base-python PATH or --baseline FILE.",
        )
    return Findings("speed", (_finding(bundle, raced, against, test, test.load.batch),))


def _against_bundle(head: Bundle, base: Path, test: SpeedTest, progress: Progress) -> RaceResult:
    """Two bundles in this process, on the head's prompts."""
    from specplan.measure.workbench import Workbench

    problem = test.load.problem(head)
    workload = problem.workload
    same = replace(test.load, output_tokens=workload.output_tokens, prompts=workload.prompts)
    other = opened(base)
    base_run = run_bundle(Workbench(same.problem(other)), other, same)
    head_run = run_bundle(Workbench(problem), head, same)
    return test.race(base_run, head_run, count_groups(problem, same), (), progress)


def _against_version(
    head: Bundle, base: Path | None, python: Path, test: SpeedTest, progress: Progress
) -> tuple[RaceResult, str]:
    """Two environments in processes of their own; this one runs the head."""
    problem = test.load.problem(head)
    with ExitStack() as stack:
        sides = [stack.enter_context(Side(path)) for path in (python, Path(sys.executable))]
        of_base = run_there(sides[0], base or head.folder, problem, test.load)
        of_head = run_there(sides[1], head.folder, problem, test.load)
        raced = test.race(of_base, of_head, count_groups(problem, test.load), (), progress)
        versions = [f"specplan {side.versions['specplan']}" for side in sides]
    return raced, f"{versions[0]} of {python} (head: {versions[1]})"


def _against_baseline(
    head: Bundle, stored: Baseline, path: Path, test: SpeedTest, progress: Progress
) -> RaceResult:
    """The plan against plain decoding, compared with the stored ratio."""
    load = replace(stored.expected_load, prompts=test.load.prompts)
    plain, plan, bench = both_runs(head, load)
    check_comparable(stored, about(head, bench, load), test.rule.shift, path)
    return test.race(plain, plan, len(stored.log_ratios), stored.log_ratios, progress)


def _finding(head: Bundle, raced: RaceResult, against: str, test: SpeedTest, batch: int) -> Finding:
    judged = raced.judgement
    status: Status = "ok"
    if judged.verdict == "slower" or (judged.verdict == "undecided" and test.strict):
        status = "regressed"
    elif judged.verdict == "undecided":
        status = "undecided"
    per_token = {
        name: median(getattr(pair, name).per_token for pair in raced.pairs)
        for name in ("base", "head")
    }
    bounds: dict[str, Any] = {}
    if judged.low > 0.0 and judged.high < float("inf"):
        bounds = {"low": judged.low, "high": judged.high}
    details = [
        f"against {against}",
        f"base {per_token['base']:.4g} s/token, head {per_token['head']:.4g} s/token (medians)",
        f"outputs differ in {raced.differing} of {len({p.group for p in raced.pairs})} groups",
    ]
    return Finding(
        name=f"{head.folder.name}, batch {batch}",
        status=status,
        summary=words(judged, test.rule, raced.seconds),
        details="\n".join(details),
        metrics=(
            Metric("time of head over base", judged.ratio, "ratio", **bounds),
            Metric("seconds per token of head", per_token["head"], "s/token"),
        ),
        seconds=raced.seconds,
        data={
            "judgement": judged.as_dict(),
            "against": against,
            "seconds_per_token": per_token,
            "differing_groups": raced.differing,
            "pairs": [
                [pair.group, pair.base.per_token, pair.head.per_token, pair.head_first]
                for pair in raced.pairs
            ],
        },
    )


def words(judged: Judgement, rule: Rule, seconds: float) -> str:
    """A judgement in one sentence."""
    seen = f"{judged.pairs} pairs in {seconds:.0f} s"
    low = f"{judged.low:.3f}" if judged.low > 0.0 else "?"
    high = f"{judged.high:.3f}" if judged.high < float("inf") else "?"
    ratio = f"{judged.ratio:.3f} times the base's time ({low} to {high}, {1 - 2 * rule.error:.0%})"
    asked = f"slower by {100.0 * rule.slowdown:.3g}%"
    if judged.verdict == "undecided":
        return f"undecided whether {asked}: {ratio}, {seen}"
    verdict = f"not {asked}"
    if judged.verdict == "slower":
        verdict = "slower than the base"
    if not judged.sure:
        odds = max(judged.odds, 1.0 / judged.odds)
        return f"{verdict}, by the better evidence only ({odds:.3g} to 1): {ratio}, {seen}"
    return f"{verdict}: {ratio}, {seen}"
